package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// exportReport is the JSON of "rules export".
type exportReport struct {
	Version int `json:"version"`
	// Number is the version of the rules.
	Number int64             `json:"number"`
	Mode   string            `json:"mode"`
	Rules  []json.RawMessage `json:"rules"`
	// OfTenants is how many rules are left out because tenants have made them.
	OfTenants int `json:"of_tenants"`

	yaml string
}

func newExport(p *program) *cobra.Command {
	var version, file string
	cmd := asking(&cobra.Command{
		Use:   "export --server ADDRESS",
		Short: "Write a server's rules as a rule file",
		Long: `Write the rules of a server with PostgreSQL as a rule file, which headgate rules apply takes back without a change.
Rules that tenants have made are left out, and so are overrides and exemptions.`,
		Example: "  headgate rules export -o rules.yaml --server https://gate:8083 --token-file token",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, s *adminServer, _ []string) (err error) {
		var number int64
		if version == "" {
			number, err = s.present(ctx)
		} else {
			number, err = readVersionNumber(version)
		}
		if err != nil {
			return err
		}
		r, err := s.export(ctx, number)
		if err != nil {
			return err
		}
		if file != "" {
			if err := os.WriteFile(file, []byte(r.yaml), 0o644); err != nil { //nolint:gosec // G306: rules are no secret
				return err
			}
			r.yaml = fmt.Sprintf("%s: %s of version %d\n", file, wording.Count(len(r.Rules), "rule"), number)
		}
		if r.OfTenants > 0 {
			p.say("%s of tenants left out", wording.Count(r.OfTenants, "rule"))
		}
		return p.end(r, nil)
	})
	cmd.Flags().StringVar(&version, "version", "", "`VERSION` of the rules; without it the present one")
	cmd.Flags().StringVarP(&file, "out", "o", "", "`FILE` to write; without it standard output")
	return cmd
}

func (s *adminServer) export(ctx context.Context, number int64) (*exportReport, error) {
	var there struct {
		Mode  string
		Rules []struct {
			Owner string
			Rule  json.RawMessage
		}
	}
	if err := s.call(ctx, http.MethodGet, fmt.Sprintf("%s/%d", versionsPath, number), nil, &there); err != nil {
		return nil, err
	}
	r := &exportReport{Version: jsonVersion, Number: number, Mode: there.Mode, Rules: []json.RawMessage{}}
	document := ruledoc.Document{}
	for document.Mode.String() != there.Mode {
		if document.Mode++; document.Mode > headgate.Off {
			return nil, s.stranger()
		}
	}
	for _, stored := range there.Rules {
		if stored.Owner != "" {
			r.OfTenants++
			continue
		}
		rule, err := s.parseRule("a rule", stored.Rule)
		if err != nil {
			return nil, err
		}
		document.Source = append(document.Source, rule)
		r.Rules = append(r.Rules, stored.Rule)
	}
	text, err := document.YAML()
	r.yaml = string(text)
	return r, err
}

func (r *exportReport) text() string { return r.yaml }

// parseRule reads a rule of the server; what says which one.
func (s *adminServer) parseRule(what string, text json.RawMessage) (headgate.Rule, error) {
	rule, err := ruledoc.ParseRule(s.address, text)
	if err != nil {
		err = fmt.Errorf("this headgate does not understand %s of %s: take the version of the server\n%w", what, s.address, err)
	}
	return rule, err
}
