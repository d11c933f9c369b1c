package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

const (
	usagePath = "/v1/rate-limit/usage"
	// mostUsage is of how many rules a subject's usage is asked for: each is a call.
	mostUsage = 100
)

// subjectUsage is what a subject has left of a rule, in the JSON of the admin API.
type subjectUsage struct {
	Rule    string              `json:"rule"`
	Subject headgate.Attributes `json:"subject"`
	// Limited is false for a subject that is exempt, and for a rule that is off.
	Limited bool         `json:"limited"`
	Limits  []limitUsage `json:"limits"`
}

type limitUsage struct {
	Name          string    `json:"name,omitzero"`
	Limit         int64     `json:"limit"`
	Remaining     int64     `json:"remaining"`
	ResetAt       time.Time `json:"resetAt"`
	WindowSeconds *float64  `json:"windowSeconds"`
	Calendar      string    `json:"calendar,omitzero"`
	Origin        string    `json:"origin"`
	Enforced      bool      `json:"enforced"`
	// LocalShare says that Redis did not answer, and what is left is left of the server's local fallback share.
	LocalShare bool `json:"localShare,omitzero"`
}

// usageReport is the JSON of "usage", "reset" and "grant".
type usageReport struct {
	Version int            `json:"version"`
	Usage   []subjectUsage `json:"usage"`
	Notes   []string       `json:"notes"`
}

func newUsage(p *program) *cobra.Command {
	var rule string
	cmd := asking(&cobra.Command{
		Use:   "usage [SUBJECT] --server ADDRESS",
		Short: "Show what a subject has left of its limits",
		Long: `Show what a subject has left of its limits, now. Nothing is charged. SUBJECT is what rules count by: tenant=acme, or
tenant=acme,user=ann. Without --rule it is asked for all rules in PostgreSQL that count by just that.

With the token of a tenant and without SUBJECT, it is about that tenant. headgate explain says which rules a request meets.`,
		Example: "  headgate usage tenant=acme,user=ann --rule exports --server https://gate:8083 --token-file token",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, s *adminServer, args []string) (err error) {
		r := usageReport{Version: jsonVersion, Usage: []subjectUsage{}, Notes: []string{}}
		if len(args) == 0 {
			var own struct{ Usage []subjectUsage }
			if err := s.call(ctx, http.MethodGet, usagePath+"/me", nil, &own); err != nil {
				return err
			}
			for _, u := range own.Usage {
				if rule == "" || u.Rule == rule {
					r.Usage = append(r.Usage, u)
				}
			}
			if rule != "" && len(r.Usage) == 0 {
				return fmt.Errorf("there is no usage of rule %q: is it in force, and does it count by the token's owner?", rule)
			}
			return p.end(&r, nil)
		}
		subject, notes, err := readSubject(args[0]) //nolint:contextcheck // it is over at once
		if err != nil {
			return &usageError{err}
		}
		r.Notes = append(r.Notes, notes...)
		rules := []string{rule}
		if rule == "" {
			if rules, err = s.rulesCounting(ctx, subject); err != nil {
				return err
			}
			if len(rules) > mostUsage {
				rules = rules[:mostUsage]
				r.Notes = append(r.Notes, fmt.Sprintf("only the first %d rules are shown: give --rule for another", mostUsage))
			}
		}
		if len(rules) == 0 {
			return fmt.Errorf("no rule counts by %s alone: headgate explain says which rules a request meets",
				wording.List(sortedNames(subject)))
		}
		for _, name := range rules {
			u, err := s.usage(ctx, name, subject)
			var refused *refusal
			if errors.As(err, &refused) && refused.status == http.StatusNotFound && rule == "" {
				continue // it is not in force there yet
			}
			if errors.As(err, &refused) && refused.status == http.StatusServiceUnavailable && rule == "" {
				r.Notes = append(r.Notes, fmt.Sprintf("%s: not known, since %s", name, refused.Detail))
				continue
			}
			if err != nil {
				return err
			}
			r.Usage = append(r.Usage, u)
		}
		return p.end(&r, nil)
	})
	cmd.Flags().StringVar(&rule, "rule", "", "only of this `RULE`")
	return cmd
}

func (s *adminServer) usage(ctx context.Context, rule string, subject headgate.Attributes) (u subjectUsage, err error) {
	q := url.Values{"ruleId": {rule}}
	for i, name := range sortedNames(subject) {
		if i == 0 {
			q.Set("subjectType", name)
			q.Set("subjectId", subject[name])
			continue
		}
		q.Set(name, subject[name])
	}
	err = s.call(ctx, http.MethodGet, usagePath+"?"+q.Encode(), nil, &u)
	return u, err
}

// rulesCounting are the names of the rules that count by the attributes of a subject, and nothing else.
func (s *adminServer) rulesCounting(ctx context.Context, subject headgate.Attributes) ([]string, error) {
	type stored struct{ Rule json.RawMessage }
	all, _, err := list[stored](ctx, s, "/v1/rate-limit/rules", "rules", url.Values{"enabled": {"true"}}, 10_000)
	var refused *refusal
	if errors.As(err, &refused) && refused.status == http.StatusNotImplemented {
		return nil, fmt.Errorf("%s has its rules in files: say of which rule, --rule RULE", s.address)
	}
	if err != nil {
		return nil, err
	}
	counted := maps.Clone(subject)
	delete(counted, "tier") // it says which limit, unless it is counted by
	var names []string
	for _, one := range all {
		rule, err := ruledoc.ParseRule(s.address, one.Rule)
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
				remarks = []string{"refuses nobody"}
			}
			left := wording.Number(max(l.Remaining, 0)) + " of " + wording.Number(l.Limit)
			if l.LocalShare {
				left = wording.Number(max(l.Remaining, 0))
				remarks = append(remarks, "of the server's local share of "+wording.Number(l.Limit)+": Redis is unavailable")
			}
			rows = append(rows, []string{limitOf(u.Rule, l.Name), left, per, instant(l.ResetAt), strings.Join(remarks, "; ")})
		}
	}
	return table(rows...) + notesText(r.Notes)
}

// credit is what a subject is to be given back, in the JSON of the admin API.
type credit struct {
	Subject headgate.Attributes `json:"subject"`
	Units   int64               `json:"units,omitzero"`
	Reason  string              `json:"reason,omitzero"`
}

func newReset(p *program) *cobra.Command {
	return newCredit(p, &cobra.Command{
		Use:   "reset RULE SUBJECT --server ADDRESS",
		Short: "Give a subject back all that it has used of a rule",
		Long: `Give a subject back all that it has used of a rule, except for what reservations hold, and show what it has then.
SUBJECT is what the rule counts by: tenant=acme, or tenant=acme,user=ann; of a rule that counts everybody together it is
everybody.`,
		Example: "  headgate reset exports tenant=acme,user=ann --reason \"our mistake\" --server https://gate:8083",
		Args:    cobra.ExactArgs(2),
	})
}

func newGrant(p *program) *cobra.Command {
	return newCredit(p, &cobra.Command{
		Use:   "grant RULE SUBJECT UNITS --server ADDRESS",
		Short: "Give a subject back some of what it has used of a rule",
		Long: `Give a subject back some of what it has used of a rule, never more than that, and show what it has then. For
more than the limit, headgate override sets another. SUBJECT is what the rule counts by: tenant=acme, or
tenant=acme,user=ann; of a rule that counts everybody together it is everybody.`,
		Example: "  headgate grant exports tenant=acme,user=ann 100 --reason \"our mistake\" --server https://gate:8083",
		Args:    cobra.ExactArgs(3),
	})
}

// newCredit makes one of the two commands that give something back.
func newCredit(p *program, cmd *cobra.Command) *cobra.Command {
	var c credit
	asking(cmd, func(ctx context.Context, s *adminServer, args []string) (err error) {
		r := usageReport{Version: jsonVersion, Usage: make([]subjectUsage, 1), Notes: []string{}}
		c.Subject = headgate.Attributes{}
		if args[1] != "everybody" {
			var notes []string
			if c.Subject, notes, err = readSubject(args[1]); err != nil { //nolint:contextcheck // it is over at once
				return &usageError{err}
			}
			r.Notes = append(r.Notes, notes...)
		}
		if len(args) > 2 {
			if c.Units, err = strconv.ParseInt(args[2], 10, 64); err != nil || c.Units < 1 || c.Units > headgate.MaxCost {
				return &usageError{fmt.Errorf("%q are no units: write 1 to %d", args[2], headgate.MaxCost)}
			}
		}
		if err := s.call(ctx, http.MethodPost, rulePath(args[0])+"/"+cmd.Name(), c, &r.Usage[0]); err != nil {
			return err
		}
		return p.end(&r, nil)
	})
	cmd.Flags().StringVar(&c.Reason, "reason", "", "`TEXT` for the history of the rule")
	return cmd
}
