package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

func newApply(p *program) *cobra.Command {
	var o planOptions
	var prune bool
	var mode string
	cmd := p.asking(&cobra.Command{
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
	}, func(ctx context.Context, c *adminclient.Client, paths []string) (report, error) {
		wanted := adminapi.RulesChange{Rules: []json.RawMessage{}, Prune: prune, Mode: mode, Comment: o.comment}
		r := planReport{Notes: []string{}}
		switch {
		case len(paths) == 0 && (mode == "" || prune):
			return nil, &usageError{errors.New("say which rules: a file or directory; or give --mode alone")}
		case len(paths) > 0:
			if err := loadRules(paths, &wanted, &r); err != nil {
				return nil, err
			}
		}
		plan := wanted
		plan.DryRun = true
		planned, err := c.Publish(ctx, &plan)
		if err != nil {
			return nil, err
		}
		r.From, r.Changes = planned.Version, planned.Changes
		r.Changes.Old.Path = fmt.Sprintf("version %d", r.From)
		r.Changes.New.Path = cmp.Or(strings.Join(paths, " "), "mode "+mode)
		return p.carryOut(ctx, &o, &r, func() (adminapi.Published, error) {
			wanted.Base = &planned.Version
			return c.Publish(ctx, &wanted)
		})
	})
	o.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "disable the rules that are not in the files")
	cmd.Flags().StringVar(&mode, "mode", "", "`MODE` that caps all rules from now on: enforce, shadow or off")
	return cmd
}

// loadRules reads the rules, and notes what is left out.
func loadRules(paths []string, v *adminapi.RulesChange, r *planReport) error {
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
