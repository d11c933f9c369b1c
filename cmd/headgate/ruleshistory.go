package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/rulediff"
)

// usualHistory is how much of the past is shown unless all is wanted.
const usualHistory = 50

// rulesVersion is one in the JSON of the admin API.
type rulesVersion struct {
	Number    int64     `json:"version"`
	Mode      string    `json:"mode"`
	Actor     string    `json:"actor"`
	Comment   string    `json:"comment"`
	CreatedAt time.Time `json:"createdAt"`
	Changed   int64     `json:"changed"`
}

// ruleChange is one of a rule or what belongs to it, in the JSON of the admin API.
type ruleChange struct {
	ID        int64           `json:"id"`
	Object    string          `json:"object"`
	Action    string          `json:"action"`
	Rule      string          `json:"rule,omitzero"`
	Old       json.RawMessage `json:"old,omitzero"`
	New       json.RawMessage `json:"new,omitzero"`
	Version   int64           `json:"version,omitzero"`
	Actor     string          `json:"actor"`
	CreatedAt time.Time       `json:"createdAt"`
}

// historyReport is the JSON of "rules history": versions, or entries if it is about one rule.
type historyReport struct {
	Version  int            `json:"version"`
	Versions []rulesVersion `json:"versions"`
	Entries  []ruleChange   `json:"entries"`
	// More says that there are older ones.
	More bool `json:"more"`

	rule string
}

func newHistory(p *program) *cobra.Command {
	var rule string
	var all bool
	cmd := asking(&cobra.Command{
		Use:   "history --server ADDRESS",
		Short: "Show who has changed a server's rules, newest first",
		Long: `Show the versions of the rules of a server with PostgreSQL, newest first: who has made them, when and why. With --rule, all
changes of one rule, its overrides, exemptions and counters.`,
		Example: "  headgate rules history --rule search-by-key --server https://gate:8083 --token-file token",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, s *adminServer, _ []string) (err error) {
		most := usualHistory
		if all {
			most = math.MaxInt
		}
		r := historyReport{Version: jsonVersion, Versions: []rulesVersion{}, Entries: []ruleChange{}, rule: rule}
		if rule == "" {
			r.Versions, r.More, err = list[rulesVersion](ctx, s, versionsPath, "versions", url.Values{}, most)
		} else {
			filter := url.Values{"rule": {rule}}
			r.Entries, r.More, err = list[ruleChange](ctx, s, "/v1/rate-limit/audit", "entries", filter, most)
		}
		if err != nil {
			return err
		}
		return p.end(&r, nil)
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
		return table(rows...) + moreText(r.More)
	}
	if len(r.Versions) == 0 {
		return "there are no rules yet: headgate rules apply makes the first version\n"
	}
	rows := [][]string{{"VERSION", "WHEN", "BY", "RULES CHANGED", "MODE", "COMMENT"}}
	for _, v := range r.Versions {
		rows = append(rows, []string{number(v.Number), instant(v.CreatedAt), v.Actor, number(v.Changed), v.Mode, v.Comment})
	}
	return table(rows...) + moreText(r.More)
}

// present is the newest version of the rules.
func (s *adminServer) present(ctx context.Context) (int64, error) {
	newest, _, err := list[rulesVersion](ctx, s, versionsPath, "versions", url.Values{}, 1)
	if err == nil && len(newest) == 0 {
		err = fmt.Errorf("%s has no rules yet: headgate rules apply makes the first version", s.address)
	}
	if err != nil {
		return 0, err
	}
	return newest[0].Number, nil
}

func newRollback(p *program) *cobra.Command {
	var o planOptions
	cmd := asking(&cobra.Command{
		Use:   "rollback VERSION --server ADDRESS",
		Short: "Make a server's rules what they were in an earlier version",
		Long: `Make the rules of a server with PostgreSQL what they were in an earlier version, as a new version. What changes for whom is
shown before. Overrides and exemptions stay as they are.

Exit code: 0 the rules are as they were then; 1 they are not, because it was a dry run or you said no; 2 it could not be done.`,
		Example: "  headgate rules history --server https://gate:8083\n  headgate rules rollback 12 --server https://gate:8083",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, s *adminServer, args []string) (err error) {
		r := planReport{Version: jsonVersion, Notes: []string{}, Changes: new(rulediff.Report)}
		to, err := readVersionNumber(args[0])
		if err != nil {
			return err
		}
		if r.From, err = s.present(ctx); err != nil {
			return err
		}
		if err := s.call(ctx, http.MethodGet, fmt.Sprintf("%s/%d/diff/%d", versionsPath, r.From, to), nil, r.Changes); err != nil {
			return err
		}
		return p.carryOut(ctx, &o, &r, func() (done published, err error) {
			// The API takes no base for this, so it is looked at as late as possible.
			if now, err := s.present(ctx); err != nil || now != r.From {
				return done, cmp.Or(err, fmt.Errorf("the rules are at version %d, and the plan is from %d: nothing was applied; run it again, "+
					"and look at the plan as it is now", now, r.From))
			}
			why := struct {
				Comment string `json:"comment,omitzero"`
			}{o.comment}
			err = s.call(ctx, http.MethodPost, fmt.Sprintf("%s/%d/rollback", versionsPath, to), why, &done)
			return done, err
		})
	})
	o.flags(cmd)
	return cmd
}

func readVersionNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, &usageError{fmt.Errorf("%q is no version: headgate rules history shows their numbers", text)}
	}
	return n, nil
}
