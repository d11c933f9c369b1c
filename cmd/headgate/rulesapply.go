package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// rulesChange is one of all rules in the JSON of the admin API.
type rulesChange struct {
	Rules   []json.RawMessage `json:"rules"`
	Prune   bool              `json:"prune"`
	Mode    string            `json:"mode,omitzero"`
	Base    *int64            `json:"base,omitzero"`
	Comment string            `json:"comment,omitzero"`
	DryRun  bool              `json:"dryRun,omitzero"`
}

func newApply(p *program) *cobra.Command {
	var o planOptions
	var prune bool
	var mode string
	cmd := asking(&cobra.Command{
		Use:   "apply PATH... --server ADDRESS",
		Short: "Make a server's rules say what rule files say, as one version",
		Long: `Make the rules of a server with PostgreSQL say what rule files say, as one version: all of it or nothing. What changes for
whom is shown before, as headgate rules diff shows it. If somebody publishes meanwhile, nothing is applied.

Rules that are not in the files stay, unless --prune is given; those that tenants have made stay in any case. Overrides and
exemptions in the files are left alone, for they are data and not rules: headgate override and headgate exempt set them.

A mode in the files that is not enforce becomes that of all rules; to end it, or as a kill switch without files, give --mode.

Exit code: 0 all is as the files say; 1 it is not, because it was a dry run or you said no; 2 it could not be done.`,
		Example: `  headgate rules apply rules/ --prune --dry-run --server https://gate:8083 --token-file token
  headgate rules apply --mode off --yes --comment "everybody gets 429" --server https://gate:8083 --token-file token`,
	}, func(ctx context.Context, s *adminServer, paths []string) error {
		wanted := rulesChange{Rules: []json.RawMessage{}, Prune: prune, Mode: mode, Comment: o.comment}
		r := planReport{Version: jsonVersion, Notes: []string{}}
		switch {
		case len(paths) == 0 && (mode == "" || prune):
			return &usageError{errors.New("say which rules: a file or directory; or give --mode alone")}
		case len(paths) > 0:
			if err := wanted.load(paths, &r); err != nil {
				return err
			}
		}
		plan := wanted
		plan.DryRun = true
		var planned published
		if err := s.call(ctx, http.MethodPost, versionsPath, plan, &planned); err != nil {
			return err
		}
		if planned.Changes == nil {
			return s.stranger()
		}
		r.From, r.Changes = planned.Version, planned.Changes
		r.Changes.Old.Path = fmt.Sprintf("version %d", r.From)
		r.Changes.New.Path = cmp.Or(strings.Join(paths, " "), "mode "+mode)
		return p.carryOut(ctx, &o, &r, func() (done published, err error) {
			wanted.Base = &planned.Version
			err = s.call(ctx, http.MethodPost, versionsPath, wanted, &done)
			return done, err
		})
	})
	o.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "disable the rules that are not in the files")
	cmd.Flags().StringVar(&mode, "mode", "", "`MODE` that caps all rules from now on: enforce, shadow or off")
	return cmd
}

// load reads the rules, and notes what is left out.
func (v *rulesChange) load(paths []string, r *planReport) error {
	d, err := ruledoc.Load(paths...)
	if err != nil {
		return err
	}
	for i := range d.Source {
		rule, err := ruledoc.EncodeRule(d.Source[i])
		if err != nil {
			return err
		}
		v.Rules = append(v.Rules, rule)
	}
	if v.Mode == "" && d.Mode != headgate.Enforce {
		v.Mode = d.Mode.String()
	}
	if n := len(d.Overrides); n > 0 {
		r.Notes = append(r.Notes, wording.Count(n, "override")+" in the files left alone: headgate override set or import sets them")
	}
	if n := len(d.Exemptions); n > 0 {
		r.Notes = append(r.Notes, wording.Count(n, "exemption")+" in the files left alone: headgate exempt add sets them")
	}
	return nil
}
