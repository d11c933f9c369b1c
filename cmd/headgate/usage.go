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
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// mostUsage is of how many rules a subject's usage is asked for: each is a call.
const mostUsage = 100

// usageReport is the JSON of "usage", "reset" and "grant".
type usageReport struct {
	Usage []adminapi.Usage `json:"usage"`
	Notes []string         `json:"notes"`
}

func newUsage(p *program) *cobra.Command {
	var rule string
	cmd := p.asking(&cobra.Command{
		Use:   "usage [SUBJECT] --server ADDRESS",
		Short: "Show what a subject has left of its limits",
		Long: `Show what a subject has left of its limits, now. Nothing is charged. SUBJECT is what rules count by: tenant=acme, or
tenant=acme,user=ann. Without --rule it is asked for all rules in PostgreSQL that count by just that.

With the token of a tenant and without SUBJECT, it is about that tenant. headgate explain says which rules a request meets.`,
		Example: "  headgate usage tenant=acme,user=ann --rule exports --server https://gate:8083 --token-file token",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (report, error) {
		if len(args) == 0 {
			return ownUsage(ctx, c, rule)
		}
		return usageOf(ctx, c, args[0], rule)
	})
	cmd.Flags().StringVar(&rule, "rule", "", "only of this `RULE`")
	return cmd
}

// ownUsage is of the token's owner, of one rule or of all.
func ownUsage(ctx context.Context, c *adminclient.Client, rule string) (report, error) {
	own, err := c.OwnUsage(ctx)
	r := usageReport{Usage: []adminapi.Usage{}, Notes: []string{}}
	for _, u := range own {
		if rule == "" || u.Rule == rule {
			r.Usage = append(r.Usage, u)
		}
	}
	if err == nil && rule != "" && len(r.Usage) == 0 {
		err = fmt.Errorf("there is no usage of rule %q: is it in force, and does it count by the token's owner?", rule)
	}
	return &r, err
}

// usageOf is of the subject in a text, of one rule or of all that count by it.
func usageOf(ctx context.Context, c *adminclient.Client, text, rule string) (report, error) {
	subject, notes, err := readSubject(text) //nolint:contextcheck // it is over at once
	if err != nil {
		return nil, &usageError{err}
	}
	r := usageReport{Usage: []adminapi.Usage{}, Notes: append([]string{}, notes...)}
	rules := []string{rule}
	if rule == "" {
		if rules, err = rulesCounting(ctx, c, subject); err != nil {
			return nil, err
		}
		if len(rules) > mostUsage {
			rules = rules[:mostUsage]
			r.Notes = append(r.Notes, fmt.Sprintf("only the first %d rules are shown: give --rule for another", mostUsage))
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("no rule counts by %s alone: headgate explain says which rules a request meets",
			wording.List(sortedNames(subject)))
	}
	for _, name := range rules {
		u, err := c.Usage(ctx, name, subject)
		var denied *adminclient.StatusError
		switch known := errors.As(err, &denied) && rule == ""; {
		case known && denied.Status == http.StatusNotFound: // it is not in force there yet
		case known && denied.Status == http.StatusServiceUnavailable:
			r.Notes = append(r.Notes, fmt.Sprintf("%s: not known, since %s", name, denied.Detail))
		case err != nil:
			return nil, err
		default:
			r.Usage = append(r.Usage, u)
		}
	}
	return &r, nil
}

// rulesCounting are the names of the rules that count by the attributes of a subject, and nothing else.
func rulesCounting(ctx context.Context, c *adminclient.Client, subject headgate.Attributes) ([]string, error) {
	all, err := c.Rules(ctx, true)
	if adminclient.HasStatus(err, http.StatusNotImplemented) {
		return nil, fmt.Errorf("%s has its rules in files: say of which rule, --rule RULE", c.Server)
	}
	if err != nil {
		return nil, err
	}
	counted := maps.Clone(subject)
	delete(counted, "tier") // it says which limit, unless it is counted by
	var names []string
	for _, one := range all {
		rule, err := ruledoc.ParseRule(c.Server, one.Document)
		if err != nil {
			continue // a newer server has it
		}
		if ruledoc.CheckSubject(&rule, subject) == nil || ruledoc.CheckSubject(&rule, counted) == nil {
			names = append(names, rule.ID)
		}
	}
	return names, nil
}

func (r *usageReport) text() string {
	rows := [][]string{{"RULE", "LEFT", "PER", "FULL AGAIN", "REMARKS"}}
	for _, u := range r.Usage {
		if !u.Limited {
			rows = append(rows, []string{u.Rule, "–", "–", "–", "exempt, or the rule is off"})
		}
		for _, l := range u.Limits {
			per := l.Calendar
			var remarks []string
			if l.WindowSeconds != nil {
				window := time.Duration(*l.WindowSeconds * float64(time.Second))
				per = strings.TrimPrefix(headgate.Per(1, window).String(), "1/") // minute, 15m
			}
			if l.Origin != "rule" {
				remarks = append(remarks, "by "+l.Origin)
			}
			if !l.Enforced {
				remarks = []string{"denies nobody"}
			}
			left := wording.Number(max(l.Remaining, 0)) + " of " + wording.Number(l.Limit)
			if l.LocalShare {
				left = wording.Number(max(l.Remaining, 0))
				remarks = append(remarks, "of the server's local share of "+wording.Number(l.Limit)+": Redis is unavailable")
			}
			rows = append(rows, []string{limitOf(u.Rule, l.Name), left, per, instant(l.ResetAt), strings.Join(remarks, "; ")})
		}
	}
	return wording.Table("", rows...) + notesText(r.Notes)
}
