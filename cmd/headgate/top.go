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

// answeredText says how many nodes have answered.
func answeredText(h *adminapi.Coverage) string {
	return fmt.Sprintf("%d of %s answered", h.Replied, wording.Count(h.Nodes, "node"))
}

// missingText says what is not shown; "" if all is.
func missingText(h *adminapi.Coverage) string {
	if h.Problem == "" {
		return ""
	}
	return "not all is shown: " + h.Problem
}

// topReport is the JSON of "top".
type topReport struct {
	adminapi.Top
	order  string // by which it is shown
	client *adminclient.Client
}

// topOptions are the flags.
type topOptions struct {
	rule, order string
	window      time.Duration
	count       int
	once        bool
}

// orders are what --sort takes. All but byNear show who is denied.
const (
	byDenied  = "denied"
	byNear    = "near"
	byRule    = "rule"
	bySubject = "subject"
)

func newTop(p *program) *cobra.Command {
	var o topOptions
	cmd := p.asking(&cobra.Command{
		Use:   "top --server ADDRESS",
		Short: "Show who is denied most now, and who is nearest to a limit",
		Long: `Show who was denied most in the last minutes, and who is nearest to a limit, on all servers. One of them is asked, and
asks the others. Nothing is charged.

On a terminal it is shown again every 2 seconds: q quits, r shows who is denied and n who is near a limit, s sorts by the
next column, space pauses. Elsewhere, with --once and with --output json it is printed once.

Subjects are hashes unless the servers' config says show_subjects: clear. headgate denials says why one is denied.

Exit code: 0 all servers have answered; 1 some have not, and are missing; 2 the server cannot be asked.`,
		Example: "  headgate top --server https://gate:8083 --token-file token --rule search",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (report, error) {
		if err := o.check(); err != nil {
			return nil, &usageError{err}
		}
		ask := func(ctx context.Context) (*topReport, error) { return o.ask(ctx, c) }
		if screen := p.screen(); screen != nil && !o.once {
			return nil, (&topView{screen: screen, ask: ask, address: c.Server, order: o.order}).run(ctx)
		}
		r, err := ask(ctx)
		return r, cmp.Or(err, verdict(r.Problem == ""))
	})
	flags := cmd.Flags()
	flags.StringVar(&o.rule, "rule", "", "only of this `RULE`")
	flags.DurationVar(&o.window, "window", adminapi.DefaultWindow, "`HOW LONG` to look back, 1m to 10m")
	flags.StringVar(&o.order, "sort", byDenied, "`ORDER`: denied, rule or subject for who is denied, near for who is near a limit")
	flags.IntVar(&o.count, "count", offenders.DefaultRows, "`N` subjects at most")
	flags.BoolVar(&o.once, "once", false, "print it once, also on a terminal")
	return cmd
}

func (o *topOptions) check() error {
	switch {
	case !slices.Contains([]string{byDenied, byNear, byRule, bySubject}, o.order):
		return fmt.Errorf("--sort %s: write denied, near, rule or subject", o.order)
	case o.window < time.Minute || o.window > offenders.KeptMinutes*time.Minute || o.window%time.Minute != 0:
		return fmt.Errorf("--window %s: write whole minutes, 1m to %dm", o.window, offenders.KeptMinutes)
	case o.count < 1 || o.count > offenders.MaxRows:
		return fmt.Errorf("--count %d: write 1 to %d", o.count, offenders.MaxRows)
	}
	return nil
}

func (o *topOptions) ask(ctx context.Context, c *adminclient.Client) (*topReport, error) {
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
		b.WriteString(r.nobody(r.order) + "\n")
	}
	for _, note := range r.notes() {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	return b.String()
}

// head says what is shown.
func (r *topReport) head() string {
	return fmt.Sprintf("the last %s until %s; %s", wording.Count(r.WindowSeconds/60, "minute"), instant(r.At), answeredText(&r.Coverage))
}

func (*topReport) nobody(order string) string {
	if order == byNear {
		return "nobody is near a limit"
	}
	return "nobody was denied"
}

// notes are what to know besides.
func (r *topReport) notes() []string {
	var notes []string
	if missing := missingText(&r.Coverage); missing != "" {
		notes = append(notes, missing)
	}
	if r.Incomplete {
		notes = append(notes, "some counts are too low: so many rules deny that not all can be remembered")
	}
	if r.order != byNear && len(r.Near) > 0 {
		notes = append(notes, wording.Count(len(r.Near), "subject")+" near a limit: "+command(r.client, "top", "--once", "--sort", byNear))
	}
	if r.order != byNear && len(r.Denied) > 0 {
		notes = append(notes, "why: "+command(r.client, "denials", "--", r.first()))
	}
	if r.ShowSubjects != string(config.ShowClear) && len(r.Denied)+len(r.Near) > 0 {
		notes = append(notes, "subjects are hashes: show_subjects: clear in the servers' config shows who they are")
	}
	return notes
}

// first is the subject in the first row, as headgate denials takes it.
func (r *topReport) first() string {
	first := &r.sorted(r.order)[0]
	if len(first.Attributes) == 0 {
		return first.Subject
	}
	return subjectText(first.Attributes)
}

// rows are the table, with its heads. What may be long comes last.
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

// sorted is who was denied, in this order.
func (r *topReport) sorted(order string) []offenders.Limited {
	sorted := slices.Clone(r.Denied)
	slices.SortStableFunc(sorted, func(a, b offenders.Limited) int {
		most := cmp.Compare(b.Denied, a.Denied)
		switch order {
		case byRule:
			return cmp.Or(strings.Compare(a.Rule, b.Rule), most)
		case bySubject:
			return cmp.Or(strings.Compare(shownSubject(a.Subject, a.Attributes), shownSubject(b.Subject, b.Attributes)), most)
		}
		return most
	})
	return sorted
}

func (r *topReport) nearRows() [][]string {
	rows := [][]string{{"USED", "", "RULE", "SUBJECT"}}
	for i := range r.Near {
		row := &r.Near[i]
		rows = append(rows, []string{
			strconv.FormatInt(100*row.Used/max(row.Of, 1), 10) + " %", wording.Number(row.Used) + " of " + wording.Number(row.Of),
			printable(limitOf(row.Rule, row.Limit)), shownSubject(row.Subject, row.Attributes),
		})
	}
	return rows
}

// perMinute has one decimal where it is small.
func perMinute(n int64, seconds int) string {
	rate := float64(n) * 60 / float64(max(seconds, 1))
	if rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return wording.Number(int64(rate + 0.5))
}

// shownSubject is who was counted, as headgate denials takes it: by name if that is known.
func shownSubject(hash string, attributes headgate.Attributes) string {
	if len(attributes) == 0 {
		return printable(hash)
	}
	return printable(subjectText(attributes))
}

// printable keeps what clients have sent from doing anything to a terminal.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(quoted[1 : len(quoted)-1])
}
