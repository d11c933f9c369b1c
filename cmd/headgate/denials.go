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

	about  string              // whom it is about; "" all
	asked  headgate.Attributes // what is known of them
	client *adminclient.Client
	most   int
}

// denialsOptions are the flags.
type denialsOptions struct {
	rule  string
	since time.Duration
	count int
}

func newDenials(p *program) *cobra.Command {
	var o denialsOptions
	cmd := p.asking(&cobra.Command{
		Use:   "denials [SUBJECT] --server ADDRESS",
		Short: "Say what was denied lately, by which limit, and why",
		Long: `Say what was denied in the last minutes, by which limit, and why, on all servers. One of them is asked, and asks the
others; they answer from memory. Nothing is charged.

SUBJECT is what is known of the requests: user=ann, or tenant=acme,user=ann; an api_key, a client and cookies are hashed
here, and sent as their hashes. Or it is the hash of a subject, as headgate top shows it; one that begins with - goes
last, after --. Without SUBJECT everybody is meant. Denials of one subject by one limit within seconds are told together.

Exit code: 0 nobody was denied; 1 somebody was, or not all servers could tell; 2 the server cannot be asked.`,
		Example: "  headgate denials user=ann --since 30m --server https://gate:8083 --token-file token",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (report, error) {
		r := denialsReport{Notes: []string{}, client: c, most: o.count}
		q, err := o.query(&r, args) //nolint:contextcheck // it is over at once
		if err != nil {
			return nil, &usageError{err}
		}
		r.Denials, err = c.Denials(ctx, q)
		return &r, cmp.Or(err, verdict(len(r.Denials.Denials) == 0 && r.Unrecorded == 0 && r.Problem == ""))
	})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd, fmt.Errorf("%w; a subject that begins with - goes last, after --", err))
	})
	flags := cmd.Flags()
	flags.StringVar(&o.rule, "rule", "", "only by this `RULE`")
	flags.DurationVar(&o.since, "since", adminapi.DefaultSince, "`HOW LONG` to look back, like 90s or 2h")
	flags.IntVar(&o.count, "count", adminapi.DefaultDenials, "`N` entries at most, the newest")
	return cmd
}

// query is what to ask for. The report notes whom it is about.
func (o *denialsOptions) query(r *denialsReport, args []string) (url.Values, error) {
	switch {
	case o.since < time.Second:
		return nil, fmt.Errorf("--since %s: write how long to look back, like 90s or 2h", o.since)
	case o.count < 1 || o.count > adminapi.MaxDenials:
		return nil, fmt.Errorf("--count %d: write 1 to %d", o.count, adminapi.MaxDenials)
	}
	q := url.Values{"since": {strconv.Itoa(int(o.since.Seconds()))}, "limit": {strconv.Itoa(o.count)}}
	if o.rule != "" {
		q.Set("rule", o.rule)
	}
	if len(args) == 0 {
		return q, nil
	}
	if _, ok := headgate.ParseSubject(args[0]); ok {
		r.about = args[0]
		q.Set("subject", args[0])
		return q, nil
	}
	asked, notes, err := readSubject(args[0])
	if err != nil {
		return nil, err
	}
	r.about, r.asked, r.Notes = subjectText(asked), asked, append(r.Notes, notes...)
	sent := denials.Query{Attributes: maps.Clone(asked)}
	sent.Hide()
	for _, name := range sortedNames(asked) {
		q.Add("attribute", name+"="+sent.Attributes[name])
	}
	return q, nil
}

func (r *denialsReport) text() string {
	var b strings.Builder
	var times int64
	for i := range r.Denials.Denials {
		times += r.Denials.Denials[i].Count
		if r.asked == nil { // else they are not of whom was asked for
			times += r.Denials.Denials[i].Others
		}
	}
	of, happened := "", "no request was denied"
	if r.about != "" {
		of = " of " + printable(r.about)
	}
	if times > 0 {
		happened = wording.Count(int(times), "denial") + of + ", the newest first"
	} else if of != "" {
		happened = "no request" + of + " was denied"
	}
	fmt.Fprintf(&b, "%s; since %s; %s\n", happened, instant(r.Since), answeredText(&r.Coverage))
	for i := range r.Denials.Denials {
		b.WriteString("\n" + denialText(&r.Denials.Denials[i]))
	}
	if notes := r.notes(); len(notes) > 0 {
		b.WriteString("\n" + notesText(notes))
	}
	return b.String()
}

// notes are what to know besides, and what to do next.
func (r *denialsReport) notes() []string {
	notes := r.Notes
	if missing := missingText(&r.Coverage); missing != "" {
		notes = append(notes, missing)
	}
	if r.Unrecorded > 0 {
		notes = append(notes, wording.Count(int(r.Unrecorded), "denial")+" of anybody in this time could not be recorded: "+
			"there were too many")
	}
	if r.From.After(r.Since) {
		notes = append(notes, "what was before "+instant(r.From)+" is not known: servers remember what they have denied since they "+
			"started, and not for ever")
	}
	if len(r.Denials.Denials) >= r.most {
		notes = append(notes, "there may be more: --count shows them, --since and --rule narrow it down")
	}
	if len(r.Denials.Denials) > 0 {
		first := &r.Denials.Denials[0]
		add := ""
		if first.Attributes["path"] == "" && r.asked["path"] == "" {
			add = " (add the path, which is not shown)"
		}
		if next := nextCommand(first, r.asked); next != nil {
			notes = append(notes, "how it is now"+add+": "+command(r.client, next...))
		}
	}
	return notes
}

// decidedBy says who decided, in words.
var decidedBy = map[headgate.Path]string{
	headgate.PathStore:  "by the shared counter",
	headgate.PathLease:  "here, by units taken from Redis in advance",
	headgate.PathCache:  "here, by what Redis had said a moment ago",
	headgate.PathLocal:  "here, by this server's share: Redis did not answer",
	headgate.PathFailed: "by the rule's on_store_failure: Redis did not answer",
	headgate.PathRules:  "by the rule itself",
}

// denialText begins with what was denied how often by which limit, and goes on with what there is to know of it.
func denialText(d *denials.Record) string {
	when, often := instant(d.First), times(d.Count)
	if last := instant(d.Last); last != when {
		when += " to " + d.Last.UTC().Format(time.TimeOnly)
	}
	if d.Others > 0 {
		often += ", and " + times(d.Others) + " from others who count as the same subject,"
	}
	limit := d.Limit
	switch d.Origin {
	case headgate.FromTier.String():
		limit += ", of tier " + d.Attributes["tier"]
	case headgate.FromOverride.String():
		limit += ", by an override"
	}
	who := maps.Clone(d.Attributes)
	delete(who, "method")
	delete(who, "path")
	asked := strings.Join(strings.Fields(d.Attributes["method"]+" "+d.Attributes["path"]+" "+wording.Attributes(who)), " ")
	rows := [][]string{
		{"  asked", cmp.Or(printable(asked), "(not shown)")},
		{"  why", whyDenied(d)},
		{"  decided", fmt.Sprintf("%s, on %s, rules version %s", cmp.Or(decidedBy[d.Path], string(d.Path)), printable(d.Node), d.RulesVersion)},
		{"  subject", d.Subject},
	}
	if d.TraceID != "" {
		rows = append(rows, []string{"  trace", d.TraceID})
	}
	return fmt.Sprintf("%s  denied %s by %s: %s\n%s", when, often, printable(limitOf(d.Rule, d.Name)), printable(limit),
		wording.Table("", rows...))
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return wording.Number(n) + " times"
}

func whyDenied(d *denials.Record) string {
	if d.Missing != "" {
		return "the request has no " + d.Missing + ", on which the rule insists"
	}
	if d.Path == headgate.PathFailed {
		return "Redis did not answer, and the rule's on_store_failure denies then"
	}
	why := fmt.Sprintf("%s left, it costs %s", wording.Number(max(d.Remaining, 0)), wording.Number(d.Cost))
	if d.RetryAfter == nil {
		return why + "; that is more than the limit ever has"
	}
	return why + "; it would have passed " + strconv.Itoa(int(math.Ceil(*d.RetryAfter))) + " s later"
}

// nextCommand are the words to type to see how it stands now; none if it is not known who it was.
func nextCommand(d *denials.Record, asked headgate.Attributes) []string {
	known := headgate.Attributes{}
	maps.Copy(known, asked)
	maps.Copy(known, d.Attributes)
	words := []string{"explain"}
	for _, name := range []string{"method", "path"} {
		value := known[name]
		switch read, _, err := readArgument(value); {
		case value == "":
		case err == nil && read == name:
			words = append(words, value)
		default:
			words = append(words, name+"="+value)
		}
	}
	var who, besides []string
	for _, name := range sortedNames(known) {
		switch name {
		case "method", "path", headgate.OtherMethod, headgate.OtherPath:
		case "route", "tier":
			besides = append(besides, name+"="+known[name])
		default:
			who = append(who, name+"="+known[name])
		}
	}
	if len(who) == 0 {
		return nil
	}
	return slices.Concat(words, who, besides)
}
