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
	cmd := p.serverCommand(&cobra.Command{
		Use:   "apply PATH... --server ADDRESS",
		Short: "Apply rule files to a server, as one version",
		Long: `Apply rule files to a server with PostgreSQL as one new version, all or nothing. The plan is shown first, in the format of
headgate rules diff. If another user publishes rules in the meantime, nothing is applied.

Rules that are not in the files are kept, unless --prune is given; rules created by tenants are always kept. Overrides and
exemptions in the files are ignored because they are data, not rules: use headgate override and headgate exempt.

A mode in the files other than enforce becomes the mode of all rules. To end it, or as a kill switch without files, use
--mode.

Exit codes:
  0  the server's rules match the files
  1  not applied: --dry-run, or not confirmed
  2  error`,
		Example: `  headgate rules apply rules/ --prune --dry-run --server https://gate:8083 --token-file token
  headgate rules apply --mode off --yes --reason "all clients get 429" --server https://gate:8083 --token-file token`,
	}, func(ctx context.Context, c *adminclient.Client, paths []string) (report, error) {
		wanted := adminapi.RulesChange{Rules: []json.RawMessage{}, Prune: prune, Mode: mode, Comment: o.comment}
		r := planReport{Notes: []string{}}
		switch {
		case len(paths) == 0 && (mode == "" || prune):
			return nil, &usageError{errors.New("no rules given: name a file or directory, or use --mode alone")}
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
		return p.applyPlan(ctx, &o, &r, func() (adminapi.Published, error) {
			wanted.Base = &planned.Version
			return c.Publish(ctx, &wanted)
		})
	})
	o.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "disable rules that are not in the files")
	cmd.Flags().StringVar(&mode, "mode", "", "set the `MODE` that caps all rules: enforce, shadow or off")
	return cmd
}

// loadRules reads the rule files into v, and adds notes about what apply ignores to r.
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
		r.Notes = append(r.Notes, wording.Count(n, "override")+" in the files ignored: use headgate override set or import")
	}
	if n := len(d.Exemptions); n > 0 {
		r.Notes = append(r.Notes, wording.Count(n, "exemption")+" in the files ignored: use headgate exempt add")
	}
	return nil
}
