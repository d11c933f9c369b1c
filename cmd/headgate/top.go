package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/offenders"
	"github.com/headgate/headgate/internal/server/wording"
)

// coverageText returns how many nodes responded.
func coverageText(c *adminapi.Coverage) string {
	return fmt.Sprintf("%d of %s responded", c.Replied, wording.Count(c.Nodes, "node"))
}

// missingText describes the missing data. It is "" if all nodes responded.
func missingText(c *adminapi.Coverage) string {
	if c.Problem == "" {
		return ""
	}
	return "incomplete: " + c.Problem
}

// topReport is the JSON of "top".
type topReport struct {
	adminapi.Top
	order  string // the value of --sort
	client *adminclient.Client
}

// topOptions holds the flags of top.
type topOptions struct {
	rule, order string
	window      time.Duration
	count       int
	once        bool
}

// The values of --sort. byNear lists the subjects near a limit; the others list the denied subjects.
const (
	byDenied  = "denied"
	byNear    = "near"
	byRule    = "rule"
	bySubject = "subject"
)

func newTop(p *program) *cobra.Command {
	var o topOptions
	cmd := p.serverCommand(&cobra.Command{
		Use:   "top --server ADDRESS",
		Short: "Show the subjects that are denied most, and those nearest to a limit",
		Long: `Show the subjects that were denied most in the last minutes, and those nearest to a limit, on all servers. The server
collects the data from the other servers. Nothing is charged.

On a terminal, the view refreshes every 2 seconds. Keys: q quit, r denied subjects, n subjects near a limit, s sort by the
next column, space pause. With --once, with --output json, or if the output is not a terminal, it is printed once.

Subjects are shown as hashes unless the servers' config has show_subjects: clear. To see why a subject is denied, use
headgate denials.

Exit codes:
  0  all servers responded
  1  the result is incomplete: a server did not respond
  2  the server cannot be queried`,
		Example: "  headgate top --server https://gate:8083 --token-file token --rule search",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (report, error) {
		if err := o.check(); err != nil {
			return nil, &usageError{err}
		}
		fetch := func(ctx context.Context) (*topReport, error) { return o.fetch(ctx, c) }
		if screen := p.screen(); screen != nil && !o.once {
			return nil, (&topView{screen: screen, fetch: fetch, address: c.Server, order: o.order}).run(ctx)
		}
		r, err := fetch(ctx)
		return r, cmp.Or(err, failUnless(r.Problem == ""))
	})
	flags := cmd.Flags()
	flags.StringVar(&o.rule, "rule", "", "show only this `RULE`")
	flags.DurationVar(&o.window, "since", adminapi.DefaultWindow, "`DURATION` to look back, 1m to 10m")
	flags.StringVar(&o.order, "sort", byDenied, "sort `ORDER`: denied, rule or subject for denied subjects; near for subjects near a limit")
	flags.IntVar(&o.count, "count", offenders.DefaultRows, "show at most `N` subjects")
	flags.BoolVar(&o.once, "once", false, "print once, even on a terminal")
	return cmd
}

func (o *topOptions) check() error {
	switch {
	case !slices.Contains([]string{byDenied, byNear, byRule, bySubject}, o.order):
		return fmt.Errorf("--sort %s: must be denied, near, rule or subject", o.order)
	case o.window < time.Minute || o.window > offenders.KeptMinutes*time.Minute || o.window%time.Minute != 0:
		return fmt.Errorf("--since %s: must be whole minutes, 1m to %dm", o.window, offenders.KeptMinutes)
	case o.count < 1 || o.count > offenders.MaxRows:
		return fmt.Errorf("--count %d: must be 1 to %d", o.count, offenders.MaxRows)
	}
	return nil
}

func (o *topOptions) fetch(ctx context.Context, c *adminclient.Client) (*topReport, error) {
	q := url.Values{"window": {strconv.Itoa(int(o.window.Seconds()))}, "limit": {strconv.Itoa(o.count)}}
	if o.rule != "" {
		q.Set("rule", o.rule)
	}
	top, err := c.Top(ctx, q)
	return &topReport{top, o.order, c}, err
}

func (r *topReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.head())
	if rows := r.rows(r.order); len(rows) > 1 {
		b.WriteString(wording.Table("", rows...))
	} else {
		b.WriteString(emptyText(r.order) + "\n")
	}
	for _, note := range r.notes() {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	return b.String()
}

// head returns the headline: period and coverage.
func (r *topReport) head() string {
	return fmt.Sprintf("last %s until %s; %s", wording.Count(r.WindowSeconds/60, "minute"), formatTime(r.At), coverageText(&r.Coverage))
}

func emptyText(order string) string {
	if order == byNear {
		return "no subject is near a limit"
	}
	return "no requests were denied"
}

// notes returns warnings and suggested commands.
func (r *topReport) notes() []string {
	var notes []string
	if missing := missingText(&r.Coverage); missing != "" {
		notes = append(notes, missing)
	}
	if r.Incomplete {
		notes = append(notes, "some counts are too low: too many rules deny requests to track all of them")
	}
	if r.order != byNear && len(r.Near) > 0 {
		notes = append(notes, wording.Count(len(r.Near), "subject")+" near a limit: "+suggestCommand(r.client, "top", "--once", "--sort", byNear))
	}
	if r.order != byNear && len(r.Denied) > 0 {
		notes = append(notes, "to see why: "+suggestCommand(r.client, "denials", "--", r.first()))
	}
	if r.ShowSubjects != string(config.ShowClear) && len(r.Denied)+len(r.Near) > 0 {
		notes = append(notes, "subjects are hashed; to show them, set show_subjects: clear in the servers' config")
	}
	return notes
}

// first returns the subject in the first row, in the syntax of headgate denials.
func (r *topReport) first() string {
	first := &r.sorted(r.order)[0]
	if len(first.Attributes) == 0 {
		return first.Subject
	}
	return subjectText(first.Attributes)
}

// rows returns the table with its header. The column that may be long comes last.
func (r *topReport) rows(order string) [][]string {
	if order == byNear {
		return r.nearRows()
	}
	sorted := r.sorted(order)
	rows := [][]string{{"DENIED", "PER MINUTE", "RULE", "SUBJECT"}}
	for i := range sorted {
		row := &sorted[i]
		denied := wording.Number(row.Denied)
		if row.Error > 0 {
			denied = wording.Number(row.Denied-row.Error) + " to " + denied
		}
		rows = append(rows, []string{
			denied, perMinute(row.Denied, r.WindowSeconds), printable(row.Rule), shownSubject(row.Subject, row.Attributes),
		})
	}
	return rows
}

// sorted returns the denied subjects in the given order.
func (r *topReport) sorted(order string) []offenders.Limited {
	sorted := slices.Clone(r.Denied)
	slices.SortStableFunc(sorted, func(a, b offenders.Limited) int {
		byCount := cmp.Compare(b.Denied, a.Denied)
		switch order {
		case byRule:
			return cmp.Or(strings.Compare(a.Rule, b.Rule), byCount)
		case bySubject:
			return cmp.Or(strings.Compare(shownSubject(a.Subject, a.Attributes), shownSubject(b.Subject, b.Attributes)), byCount)
		}
		return byCount
	})
	return sorted
}

func (r *topReport) nearRows() [][]string {
	rows := [][]string{{"USED", "UNITS", "RULE", "SUBJECT"}}
	for i := range r.Near {
		row := &r.Near[i]
		rows = append(rows, []string{
			strconv.FormatInt(100*row.Used/max(row.Of, 1), 10) + " %", wording.Number(row.Used) + " of " + wording.Number(row.Of),
			printable(qualifiedLimit(row.Rule, row.Limit)), shownSubject(row.Subject, row.Attributes),
		})
	}
	return rows
}

// perMinute returns the rate per minute, with one decimal below 10.
func perMinute(n int64, seconds int) string {
	rate := float64(n) * 60 / float64(max(seconds, 1))
	if rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return wording.Number(int64(rate + 0.5))
}

// shownSubject returns the subject in the syntax of headgate denials: its attributes if they are known, its hash otherwise.
func shownSubject(hash string, attributes headgate.Attributes) string {
	if len(attributes) == 0 {
		return printable(hash)
	}
	return printable(subjectText(attributes))
}

// printable escapes control characters, so that values sent by clients cannot control the terminal.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(quoted[1 : len(quoted)-1])
}
