package main

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/spf13/cobra"
)

// usualHistory is how much of the past is shown unless all is wanted.
const usualHistory = 50

// historyReport is the JSON of "rules history": versions, or entries if it is about one rule.
type historyReport struct {
	Versions []adminapi.Version    `json:"versions"`
	Entries  []adminapi.AuditEntry `json:"entries"`
	// More says that there are older ones.
	More bool `json:"more"`

	rule string
}

func newHistory(p *program) *cobra.Command {
	var rule string
	var all bool
	cmd := p.asking(&cobra.Command{
		Use:   "history --server ADDRESS",
		Short: "Show who has changed a server's rules, newest first",
		Long: `Show the versions of the rules of a server with PostgreSQL, newest first: who has made them, when and why. With --rule, all
changes of one rule, its overrides, exemptions and counters.`,
		Example: "  headgate rules history --rule search-by-key --server https://gate:8083 --token-file token",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (_ report, err error) {
		r := historyReport{Versions: []adminapi.Version{}, Entries: []adminapi.AuditEntry{}, rule: rule}
		if most := mostOf(all, usualHistory); rule == "" {
			r.Versions, r.More, err = c.Versions(ctx, most)
		} else {
			r.Entries, r.More, err = c.Audit(ctx, rule, most)
		}
		return &r, err
	})
	cmd.Flags().StringVar(&rule, "rule", "", "show what has become of this `RULE`")
	cmd.Flags().BoolVar(&all, "all", false, fmt.Sprintf("show more than the last %d", usualHistory))
	return cmd
}

func (r *historyReport) text() string {
	if r.rule != "" {
		rows := [][]string{{"WHEN", "VERSION", "BY", "WHAT"}}
		for _, e := range r.Entries {
			version := ""
			if e.Version > 0 {
				version = number(e.Version)
			}
			rows = append(rows, []string{instant(e.CreatedAt), version, e.Actor, e.Object + " " + e.Action})
		}
		return wording.Table("", rows...) + moreText(r.More)
	}
	if len(r.Versions) == 0 {
		return "there are no rules yet: headgate rules apply makes the first version\n"
	}
	rows := [][]string{{"VERSION", "WHEN", "BY", "RULES CHANGED", "MODE", "COMMENT"}}
	for _, v := range r.Versions {
		rows = append(rows, []string{number(v.Number), instant(v.CreatedAt), v.Actor, number(v.Changed), v.Mode, v.Comment})
	}
	return wording.Table("", rows...) + moreText(r.More)
}
