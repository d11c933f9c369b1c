package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// exportReport is the JSON of "rules export".
type exportReport struct {
	// Number is the version number of the rules.
	Number int64             `json:"number"`
	Mode   string            `json:"mode"`
	Rules  []json.RawMessage `json:"rules"`
	// OfTenants is the number of rules omitted because tenants created them.
	OfTenants int `json:"of_tenants"`

	yaml string
}

func newExport(p *program) *cobra.Command {
	var version, file string
	cmd := p.serverCommand(&cobra.Command{
		Use:   "export --server ADDRESS",
		Short: "Export a server's rules as a rule file",
		Long: `Export the rules of a server with PostgreSQL as a rule file. Applying the file with headgate rules apply changes nothing.
Rules created by tenants, overrides and exemptions are omitted.`,
		Example: "  headgate rules export --out rules.yaml --server https://gate:8083 --token-file token",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (_ report, err error) {
		var number int64
		if version == "" {
			number, err = c.CurrentVersion(ctx)
		} else {
			number, err = parseVersionNumber(version)
		}
		if err != nil {
			return nil, err
		}
		r, err := export(ctx, c, number)
		if err != nil {
			return nil, err
		}
		if file != "" {
			if err := os.WriteFile(file, []byte(r.yaml), 0o644); err != nil { //nolint:gosec // G306: rules are not secret
				return nil, err
			}
			r.yaml = fmt.Sprintf("%s: %s of version %d\n", file, wording.Count(len(r.Rules), "rule"), number)
		}
		if r.OfTenants > 0 {
			p.logf("%s of tenants omitted", wording.Count(r.OfTenants, "rule"))
		}
		return r, nil
	})
	cmd.Flags().StringVar(&version, "version", "", "`VERSION` to export (default: the current version)")
	cmd.Flags().StringVar(&file, "out", "", "write to `FILE` (default: standard output)")
	return cmd
}

func export(ctx context.Context, c *adminclient.Client, number int64) (*exportReport, error) {
	mode, rules, err := c.RulesAt(ctx, number)
	if err != nil {
		return nil, err
	}
	r := &exportReport{Number: number, Mode: mode.String(), Rules: []json.RawMessage{}}
	document := ruledoc.Document{Mode: mode}
	for _, stored := range rules {
		if stored.Owner != "" {
			r.OfTenants++
			continue
		}
		rule, err := c.ParseRule("a rule", stored.Document)
		if err != nil {
			return nil, err
		}
		document.Source = append(document.Source, rule)
		r.Rules = append(r.Rules, stored.Document)
	}
	text, err := document.YAML()
	r.yaml = string(text)
	return r, err
}

func (r *exportReport) text() string { return r.yaml }
