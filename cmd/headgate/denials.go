package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/wording"
)

// denialsReport is the JSON of "denials".
type denialsReport struct {
	adminapi.Denials
	Notes []string `json:"notes"`

	subject    string              // the SUBJECT argument; "" means all clients
	attributes headgate.Attributes // the attributes in SUBJECT; nil if it is a hash
	client     *adminclient.Client
	count      int
}

// denialsOptions holds the flags of denials.
type denialsOptions struct {
	rule  string
	since time.Duration
	count int
}

func newDenials(p *program) *cobra.Command {
	var o denialsOptions
	cmd := p.serverCommand(&cobra.Command{
		Use:   "denials [SUBJECT] --server ADDRESS",
		Short: "List recent denials, with the limit and the reason",
		Long: `List the requests denied in the last minutes on all servers, with the limit and the reason. The server collects the data,
which all servers keep in memory. Nothing is charged.

SUBJECT selects requests by their attributes: user=ann, or tenant=acme,user=ann. An api_key, a client and cookies are
hashed locally, and only the hashes are sent. SUBJECT may also be a hash shown by headgate top; if it begins with -, put it
last, after --. Without SUBJECT, denials of all clients are listed. Denials of one subject by one limit within seconds are
grouped.

Exit codes:
  0  no requests were denied
  1  requests were denied, or the result is incomplete
  2  the server cannot be queried`,
		Example: "  headgate denials user=ann --since 30m --server https://gate:8083 --token-file token",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (report, error) {
		r := denialsReport{Notes: []string{}, client: c, count: o.count}
		q, err := o.query(&r, args) //nolint:contextcheck // it returns immediately
		if err != nil {
			return nil, &usageError{err}
		}
		r.Denials, err = c.Denials(ctx, q)
		return &r, cmp.Or(err, failUnless(len(r.Denials.Denials) == 0 && r.Unrecorded == 0 && r.Problem == ""))
	})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd, fmt.Errorf("%w; put a subject that begins with - last, after --", err))
	})
	flags := cmd.Flags()
	flags.StringVar(&o.rule, "rule", "", "show only denials by this `RULE`")
	flags.DurationVar(&o.since, "since", adminapi.DefaultSince, "`DURATION` to look back, such as 90s or 2h")
	flags.IntVar(&o.count, "count", adminapi.DefaultDenials, "show at most the `N` newest entries")
	return cmd
}

// query returns the query of the admin API, and stores the parsed SUBJECT in r.
func (o *denialsOptions) query(r *denialsReport, args []string) (url.Values, error) {
	switch {
	case o.since < time.Second:
		return nil, fmt.Errorf("--since %s: must be at least 1s, such as 90s or 2h", o.since)
	case o.count < 1 || o.count > adminapi.MaxDenials:
		return nil, fmt.Errorf("--count %d: must be 1 to %d", o.count, adminapi.MaxDenials)
	}
	q := url.Values{"since": {strconv.Itoa(int(o.since.Seconds()))}, "limit": {strconv.Itoa(o.count)}}
	if o.rule != "" {
		q.Set("rule", o.rule)
	}
	if len(args) == 0 {
		return q, nil
	}
	if _, ok := headgate.ParseSubject(args[0]); ok {
		r.subject = args[0]
		q.Set("subject", args[0])
		return q, nil
	}
	attributes, notes, err := parseSubject(args[0])
	if err != nil {
		return nil, err
	}
	r.subject, r.attributes, r.Notes = subjectText(attributes), attributes, append(r.Notes, notes...)
	sent := denials.Query{Attributes: maps.Clone(attributes)}
	sent.Hide()
	for _, name := range sortedNames(attributes) {
		q.Add("attribute", name+"="+sent.Attributes[name])
	}
	return q, nil
}

func (r *denialsReport) text() string {
	var b strings.Builder
	var times int64
	for i := range r.Denials.Denials {
		times += r.Denials.Denials[i].Count
		if r.attributes == nil { // otherwise the other requests have other attributes
			times += r.Denials.Denials[i].Others
		}
	}
	of, summary := "", "no requests were denied"
	if r.subject != "" {
		of = " of " + printable(r.subject)
	}
	if times > 0 {
		summary = wording.Count(int(times), "denial") + of + ", newest first"
	} else if of != "" {
		summary = "no requests" + of + " were denied"
	}
	fmt.Fprintf(&b, "%s; since %s; %s\n", summary, formatTime(r.Since), coverageText(&r.Coverage))
	for i := range r.Denials.Denials {
		b.WriteString("\n" + denialText(&r.Denials.Denials[i]))
	}
	if notes := r.notes(); len(notes) > 0 {
		b.WriteString("\n" + notesText(notes))
	}
	return b.String()
}

// notes returns warnings and suggested commands.
func (r *denialsReport) notes() []string {
	notes := r.Notes
	if missing := missingText(&r.Coverage); missing != "" {
		notes = append(notes, missing)
	}
	if r.Unrecorded > 0 {
		notes = append(notes, wording.Count(int(r.Unrecorded), "denial")+" (of all clients) in this period not recorded: "+
			"too many at once")
	}
	if r.From.After(r.Since) {
		notes = append(notes, "denials before "+formatTime(r.From)+" are not available: servers keep recent denials in memory since they "+
			"started")
	}
	if len(r.Denials.Denials) >= r.count {
		notes = append(notes, "there may be more: raise --count, or narrow the list with --since and --rule")
	}
	if len(r.Denials.Denials) > 0 {
		first := &r.Denials.Denials[0]
		add := ""
		if first.Attributes["path"] == "" && r.attributes["path"] == "" {
			add = " (add the path, which is not shown)"
		}
		if next := nextCommand(first, r.attributes); next != nil {
			notes = append(notes, "current state"+add+": "+suggestCommand(r.client, next...))
		}
	}
	return notes
}

// decidedBy describes each decision path.
var decidedBy = map[headgate.Path]string{
	headgate.PathStore:  "by the counter",
	headgate.PathLease:  "locally, from units leased in advance",
	headgate.PathCache:  "locally, from a recently cached denial",
	headgate.PathLocal:  "locally, by the local fallback share: Redis unavailable",
	headgate.PathFailed: "by on_store_failure: Redis unavailable",
	headgate.PathRules:  "by the rule itself",
}

// denialText formats a record: time, count and limit on the first line, details in a table below.
func denialText(d *denials.Record) string {
	when, often := formatTime(d.First), times(d.Count)
	if last := formatTime(d.Last); last != when {
		when += " to " + d.Last.UTC().Format(time.TimeOnly)
	}
	if d.Others > 0 {
		often += " (and " + times(d.Others) + " from other clients of the same subject)"
	}
	limit := d.Limit
	switch d.Origin {
	case headgate.FromTier.String():
		limit += ", tier " + d.Attributes["tier"]
	case headgate.FromOverride.String():
		limit += ", override"
	}
	rest := maps.Clone(d.Attributes)
	delete(rest, "method")
	delete(rest, "path")
	request := strings.Join(strings.Fields(d.Attributes["method"]+" "+d.Attributes["path"]+" "+wording.Attributes(rest)), " ")
	rows := [][]string{
		{"  request", cmp.Or(printable(request), "(not shown)")},
		{"  reason", denialReason(d)},
		{"  decided", fmt.Sprintf("%s, on %s, rules version %s", cmp.Or(decidedBy[d.Path], string(d.Path)), printable(d.Node), d.RulesVersion)},
		{"  subject", d.Subject},
	}
	if d.TraceID != "" {
		rows = append(rows, []string{"  trace", d.TraceID})
	}
	return fmt.Sprintf("%s  denied %s by %s: %s\n%s", when, often, printable(qualifiedLimit(d.Rule, d.Name)), printable(limit),
		wording.Table("", rows...))
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return wording.Number(n) + " times"
}

func denialReason(d *denials.Record) string {
	if d.Missing != "" {
		return "the request has no " + d.Missing + ", which the rule requires"
	}
	if d.Path == headgate.PathFailed {
		return "Redis unavailable, and the rule's on_store_failure is deny"
	}
	reason := fmt.Sprintf("%s remaining, cost %s", wording.Number(max(d.Remaining, 0)), wording.Number(d.Cost))
	if count, _, ok := strings.Cut(d.Limit, " concurrent"); ok && d.RetryAfter == nil {
		if n, err := strconv.ParseInt(count, 10, 64); err == nil && d.Cost <= n {
			return reason + "; until a request in flight ends"
		}
	}
	if d.RetryAfter == nil {
		return reason + "; more than the limit ever grants"
	}
	return reason + "; retry after " + strconv.Itoa(int(math.Ceil(*d.RetryAfter))) + " s"
}

// nextCommand returns the words of a headgate explain command for the denied request. It returns nil if no attribute identifies the
// client. The attributes in SUBJECT complete those of the record.
func nextCommand(d *denials.Record, attributes headgate.Attributes) []string {
	known := headgate.Attributes{}
	maps.Copy(known, attributes)
	maps.Copy(known, d.Attributes)
	words := []string{"explain"}
	for _, name := range []string{"method", "path"} {
		value := known[name]
		switch read, _, err := parseArgument(value); {
		case value == "":
		case err == nil && read == name:
			words = append(words, value)
		default:
			words = append(words, name+"="+value)
		}
	}
	var client, other []string
	for _, name := range sortedNames(known) {
		switch name {
		case "method", "path", headgate.OtherMethod, headgate.OtherPath:
		case "route", "tier":
			other = append(other, name+"="+known[name])
		default:
			client = append(client, name+"="+known[name])
		}
	}
	if len(client) == 0 {
		return nil
	}
	return slices.Concat(words, client, other)
}
