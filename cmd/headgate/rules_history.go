package main

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/spf13/cobra"
)

// defaultHistory is the number of entries shown without --all.
const defaultHistory = 50

// historyReport is the JSON of "rules history": versions, or the entries of one rule with --rule.
type historyReport struct {
	Versions []adminapi.Version    `json:"versions"`
	Entries  []adminapi.AuditEntry `json:"entries"`
	// More reports whether older entries exist.
	More bool `json:"more"`

	rule string
}

func newHistory(p *program) *cobra.Command {
	var rule string
	var all bool
	cmd := p.serverCommand(&cobra.Command{
		Use:   "history --server ADDRESS",
		Short: "Show the changes of a server's rules, newest first",
		Long: `Show the versions of the rules of a server with PostgreSQL, newest first, with author, time and comment. With --rule, show
all changes of one rule and of its overrides, exemptions and counters.`,
		Example: "  headgate rules history --rule search-by-key --server https://gate:8083 --token-file token",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (_ report, err error) {
		r := historyReport{Versions: []adminapi.Version{}, Entries: []adminapi.AuditEntry{}, rule: rule}
		if limit := listLimit(all, defaultHistory); rule == "" {
			r.Versions, r.More, err = c.Versions(ctx, limit)
		} else {
			r.Entries, r.More, err = c.Audit(ctx, rule, limit)
		}
		return &r, err
	})
	cmd.Flags().StringVar(&rule, "rule", "", "show all changes of this `RULE`")
	cmd.Flags().BoolVar(&all, "all", false, fmt.Sprintf("show all entries (default: the latest %d)", defaultHistory))
	return cmd
}

func (r *historyReport) text() string {
	if r.rule != "" {
		rows := [][]string{{"TIME", "VERSION", "AUTHOR", "CHANGE"}}
		for _, e := range r.Entries {
			version := ""
			if e.Version > 0 {
				version = number(e.Version)
			}
			rows = append(rows, []string{formatTime(e.CreatedAt), version, e.Actor, e.Object + " " + e.Action})
		}
		return wording.Table("", rows...) + moreText(r.More)
	}
	if len(r.Versions) == 0 {
		return "no rules yet: create the first version with headgate rules apply\n"
	}
	rows := [][]string{{"VERSION", "TIME", "AUTHOR", "RULES CHANGED", "MODE", "COMMENT"}}
	for _, v := range r.Versions {
		rows = append(rows, []string{number(v.Number), formatTime(v.CreatedAt), v.Actor, number(v.Changed), v.Mode, v.Comment})
	}
	return wording.Table("", rows...) + moreText(r.More)
}
