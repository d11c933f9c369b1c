package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// maxUsageRules caps the number of rules queried for a subject, because each rule is one call.
const maxUsageRules = 100

// usageReport is the JSON of "usage", "reset" and "grant".
type usageReport struct {
	Usage []adminapi.Usage `json:"usage"`
	Notes []string         `json:"notes"`
}

func newUsage(p *program) *cobra.Command {
	var rule string
	cmd := p.serverCommand(&cobra.Command{
		Use:   "usage [SUBJECT] --server ADDRESS",
		Short: "Show the remaining units of a subject",
		Long: `Show how many units a subject has left of its limits now. Nothing is charged.

SUBJECT is the attributes that rules count by: tenant=acme, or tenant=acme,user=ann. Without --rule, all rules in PostgreSQL
that count by exactly these attributes are shown. Without SUBJECT, the usage of the token's owner is shown.

To find out which rules apply to a request, use headgate explain.`,
		Example: "  headgate usage tenant=acme,user=ann --rule exports --server https://gate:8083 --token-file token",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (report, error) {
		if len(args) == 0 {
			return ownUsage(ctx, c, rule)
		}
		return subjectUsage(ctx, c, args[0], rule)
	})
	cmd.Flags().StringVar(&rule, "rule", "", "show only this `RULE`")
	return cmd
}

// ownUsage returns the usage of the token's owner, of one rule or of all rules.
func ownUsage(ctx context.Context, c *adminclient.Client, rule string) (report, error) {
	own, err := c.OwnUsage(ctx)
	r := usageReport{Usage: []adminapi.Usage{}, Notes: []string{}}
	for _, u := range own {
		if rule == "" || u.Rule == rule {
			r.Usage = append(r.Usage, u)
		}
	}
	if err == nil && rule != "" && len(r.Usage) == 0 {
		err = fmt.Errorf("rule %q: no usage found: check that the rule is active and counts by the token's owner", rule)
	}
	return &r, err
}

// subjectUsage returns the usage of the given subject, of one rule or of all rules that count by its attributes.
func subjectUsage(ctx context.Context, c *adminclient.Client, text, rule string) (report, error) {
	subject, notes, err := parseSubject(text) //nolint:contextcheck // it returns immediately
	if err != nil {
		return nil, &usageError{err}
	}
	r := usageReport{Usage: []adminapi.Usage{}, Notes: append([]string{}, notes...)}
	rules := []string{rule}
	if rule == "" {
		if rules, err = rulesCountingBy(ctx, c, subject); err != nil {
			return nil, err
		}
		if len(rules) > maxUsageRules {
			rules = rules[:maxUsageRules]
			r.Notes = append(r.Notes, fmt.Sprintf("only the first %d rules are shown: use --rule for another", maxUsageRules))
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("no rule counts by exactly %s: find the rules of a request with headgate explain",
			wording.List(sortedNames(subject)))
	}
	for _, name := range rules {
		u, err := c.Usage(ctx, name, subject)
		var denied *adminclient.StatusError
		switch tolerated := errors.As(err, &denied) && rule == ""; {
		case tolerated && denied.Status == http.StatusNotFound: // the server does not run the rule yet
		case tolerated && denied.Status == http.StatusServiceUnavailable:
			r.Notes = append(r.Notes, fmt.Sprintf("%s: unknown: %s", name, denied.Detail))
		case err != nil:
			return nil, err
		default:
			r.Usage = append(r.Usage, u)
		}
	}
	return &r, nil
}

// rulesCountingBy returns the IDs of the rules that count by exactly the attributes of a subject.
func rulesCountingBy(ctx context.Context, c *adminclient.Client, subject headgate.Attributes) ([]string, error) {
	all, err := c.Rules(ctx, true)
	if adminclient.HasStatus(err, http.StatusNotImplemented) {
		return nil, fmt.Errorf("%s loads its rules from files: use --rule RULE", c.Server)
	}
	if err != nil {
		return nil, err
	}
	counted := maps.Clone(subject)
	delete(counted, "tier") // it selects a limit, unless the rule counts by it
	var names []string
	for _, one := range all {
		rule, err := ruledoc.ParseRule(c.Server, one.Document)
		if err != nil {
			continue // the rule has fields of a newer version
		}
		if ruledoc.CheckSubject(&rule, subject) == nil || ruledoc.CheckSubject(&rule, counted) == nil {
			names = append(names, rule.ID)
		}
	}
	return names, nil
}

func (r *usageReport) text() string {
	rows := [][]string{{"RULE", "REMAINING", "PER", "RESET", "NOTES"}}
	regions := [][]string{explain.RegionHeading()}
	for _, u := range r.Usage {
		if !u.Limited {
			rows = append(rows, []string{u.Rule, "–", "–", "–", "exempt, or rule off"})
		}
		for _, l := range u.Limits {
			per := l.Calendar
			var notes []string
			if l.WindowSeconds != nil {
				window := time.Duration(*l.WindowSeconds * float64(time.Second))
				per = strings.TrimPrefix(headgate.Per(1, window).String(), "1/") // minute, 15m
			}
			reset := formatTime(l.ResetAt)
			if l.Concurrent {
				per, reset = "in flight", "–"
			}
			if l.Origin != "rule" {
				notes = append(notes, "from "+l.Origin)
			}
			if !l.Enforced {
				notes = []string{"not enforced"}
			}
			left := wording.Number(max(l.Remaining, 0)) + " of " + wording.Number(l.Limit)
			if l.Share != nil {
				left = wording.Number(max(l.Remaining, 0)) + " of " + wording.Number(*l.Share)
				notes = append(notes, "share of this region")
			}
			if l.Regions != nil {
				regions = append(regions, l.Regions.RegionRows(qualifiedLimit(u.Rule, l.Name))...)
				notes = append(notes, "used "+l.Regions.Total())
			}
			store := "Redis"
			if l.Home != nil {
				notes = append(notes, l.Home.String())
				if !l.Home.Own {
					store = "it is"
				}
			}
			if l.LocalShare {
				left = wording.Number(max(l.Remaining, 0))
				notes = append(notes, store+" unavailable: local fallback share of "+wording.Number(l.Limit))
			}
			rows = append(rows, []string{qualifiedLimit(u.Rule, l.Name), left, per, reset, strings.Join(notes, "; ")})
		}
	}
	text := wording.Table("", rows...)
	if len(regions) > 1 {
		text += "\n" + explain.RegionsTitle + "\n" + wording.Table("  ", regions...)
		if len(r.Notes) > 0 {
			text += "\n"
		}
	}
	return text + notesText(r.Notes)
}
