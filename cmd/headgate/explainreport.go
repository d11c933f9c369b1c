package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/redisstore"
)

// mostOthers is how many rules that do not apply are shown.
const mostOthers = 10

// explainReport is the JSON of "explain".
type explainReport struct {
	Version int  `json:"version"`
	Allowed bool `json:"allowed"`
	// RetryAfter is 0 if the request may pass, null if it never can.
	RetryAfter *float64 `json:"retry_after"`
	// Delay is how long a leaky bucket would hold the request.
	Delay   float64 `json:"delay"`
	Summary string  `json:"summary"`
	// Request is the attributes as a server would read them.
	Request      headgate.Attributes `json:"request"`
	Cost         int64               `json:"cost"`
	Rules        []string            `json:"rules_from"`
	RulesVersion string              `json:"rules_version"`
	// Redis is empty if none was asked: all counters are then taken as never used. Time is its, if it was asked.
	Redis string    `json:"redis"`
	Time  time.Time `json:"time,omitzero"`
	// Limits are all that apply, the refusing ones first.
	Limits []limitReport `json:"limits"`
	Notes  []string      `json:"notes"`
	// NotApplied are rules that do not apply, and NotShown is how many more there are.
	NotApplied []otherRule `json:"not_applied"`
	NotShown   int         `json:"not_shown"`
}

type limitReport struct {
	Rule  string `json:"rule"`
	Name  string `json:"name"` // empty if the rule has one limit only
	Limit string `json:"limit"`
	// Origin is rule, tier, override or candidate.
	Origin string `json:"origin"`
	// CountedBy is empty if everybody is counted together; what the request lacks is empty in it.
	CountedBy headgate.Attributes `json:"counted_by"`
	Cost      int64               `json:"cost"`
	// Capacity is the most that can be used at once, and Used what is not Remaining of it. Of a leaky bucket Remaining is
	// the room in its queue, and Used 0.
	Capacity   int64    `json:"capacity"`
	Used       int64    `json:"used"`
	Remaining  int64    `json:"remaining"`
	ResetAfter float64  `json:"reset_after"`
	RetryAfter *float64 `json:"retry_after"` // null if the request can never pass
	Allowed    bool     `json:"allowed"`
	Enforced   bool     `json:"enforced"` // false in shadow and on trial
	Verdict    string   `json:"verdict"`
	// Key and Field, in hexadecimal, are where the counter is in Redis.
	Key   string `json:"key,omitempty"`
	Field string `json:"field,omitempty"`

	title, used string
}

type otherRule struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

func newExplainReport(e *headgate.Explanation, q *question, o *explainOptions, redis *redisstore.Store) *explainReport {
	d := &e.Decision
	r := &explainReport{
		Version: jsonVersion, Allowed: d.Allowed, RetryAfter: seconds(d.RetryAfter), Delay: d.Delay.Seconds(),
		Request: q.attributes, Cost: o.cost, Rules: o.rules, RulesVersion: d.Version,
		Limits: []limitReport{}, Notes: append([]string{}, q.notes...), NotApplied: []otherRule{},
	}
	by := map[string]headgate.Attributes{}
	var elsewhere []otherRule
	for _, rule := range e.Rules {
		switch id := rule.Rule.ID; {
		case !rule.Applies && strings.HasPrefix(rule.Why, "path is "):
			elsewhere = append(elsewhere, otherRule{id, rule.Why}) // last: they say the least about this request
		case !rule.Applies:
			r.NotApplied = append(r.NotApplied, otherRule{id, rule.Why})
		case rule.Why != "":
			r.Notes = append(r.Notes, id+": "+rule.Why)
			fallthrough
		default:
			by[id] = rule.Subject
		}
	}
	r.NotApplied = append(r.NotApplied, elsewhere...)
	if n := len(r.NotApplied); n > mostOthers && !o.all {
		r.NotApplied, r.NotShown = r.NotApplied[:mostOthers], n-mostOthers
	}
	if d.Path == headgate.PathRules {
		r.Notes = append(r.Notes, "it is refused before anything is counted: other limits were not asked")
	}
	for i := range d.Limits {
		l := newLimitReport(&d.Limits[i])
		if l.CountedBy = by[l.Rule]; redis != nil {
			l.Key, l.Field = redis.Key(d.Limits[i].Subject), fmt.Sprintf("%012x", uint64(d.Limits[i].Counter))
		}
		r.Limits = append(r.Limits, l)
	}
	slices.SortStableFunc(r.Limits, func(a, b limitReport) int { return a.rank() - b.rank() })
	if r.Summary = r.summarise(d); redis != nil {
		r.Redis, r.Time = redact(o.redis), d.Time
	}
	return r
}

func newLimitReport(l *headgate.LimitDecision) limitReport {
	r := limitReport{
		Rule: l.Rule, Name: l.Name, Limit: l.Limit.String(), Origin: l.Origin.String(), Cost: l.Cost,
		Capacity: l.Limit.Capacity(), Remaining: l.Remaining,
		ResetAfter: l.ResetAfter.Seconds(), RetryAfter: seconds(l.RetryAfter),
		Allowed: l.Allowed, Enforced: l.Enforced, Verdict: verdict(l), title: l.Rule,
	}
	names := []string{l.Name}
	if l.Origin == headgate.FromCandidate {
		names = append(names, "candidate")
	}
	if text := strings.TrimSpace(strings.Join(names, " ")); text != "" {
		r.title += " (" + text + ")"
	}
	switch {
	case l.Missing != "":
		r.used = "not asked"
	case l.Limit.Algorithm == headgate.LeakyBucket:
		r.used = "room for " + grouped(l.Remaining)
	default:
		r.Used = r.Capacity - r.Remaining
		r.used = grouped(r.Used) + " of " + grouped(r.Capacity)
	}
	if l.Cost > 1 {
		r.used += ", asks " + grouped(l.Cost)
	}
	return r
}

// rank puts what refuses first.
func (r *limitReport) rank() int {
	return slices.Index([]bool{r.Enforced && !r.Allowed, !r.Allowed, true}, true)
}

// seconds is nil for never.
func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	if d == headgate.Never {
		return nil
	}
	return &s
}

// summarise is the verdict in a sentence.
func (r *explainReport) summarise(d *headgate.Decision) string {
	var refusing, shadow []string
	for _, l := range r.Limits {
		switch {
		case !l.Allowed && l.Enforced:
			refusing = append(refusing, l.title)
		case !l.Allowed && l.Origin != headgate.FromCandidate.String():
			shadow = append(shadow, l.title)
		}
	}
	if worst := d.Refused(); worst != nil {
		text := "429: refused by " + sentence(refusing)
		switch {
		case worst.Missing != "":
			return text + "; retrying does not help: the request has no " + worst.Missing
		case worst.RetryAfter == headgate.Never:
			return fmt.Sprintf("%s; retrying does not help: it costs %s, and the limit holds %s", text, grouped(worst.Cost),
				grouped(worst.Limit.Capacity()))
		}
		return text + "; retry after " + span(d.RetryAfter)
	}
	text := "passes: no rule applies"
	if n := len(d.Limits); n > 0 {
		text = "passes: within " + count(n, "limit")
	}
	special := slices.IndexFunc(r.NotApplied, func(o otherRule) bool {
		return strings.HasPrefix(o.Why, "exempt") || strings.HasPrefix(o.Why, "all rules")
	})
	if special >= 0 && len(d.Limits) == 0 {
		text += ": " + r.NotApplied[special].Why
	}
	if d.Delay > 0 {
		text += "; it is held for " + d.Delay.Round(time.Millisecond).String()
	}
	if len(shadow) > 0 {
		text += "; " + sentence(shadow) + " would refuse but for shadow"
	}
	return text
}

// verdict is what one limit says.
func verdict(l *headgate.LimitDecision) string {
	text := "passes"
	switch {
	case l.Missing != "":
		text = "refuses: no " + l.Missing
	case l.WouldRefuse() && l.RetryAfter == headgate.Never:
		text = "refuses: asks for too much"
	case l.WouldRefuse():
		text = "refuses for " + span(l.RetryAfter)
	case l.Delay > 0:
		text = "passes after " + l.Delay.Round(time.Millisecond).String()
	}
	if l.Enforced {
		return text
	}
	mode := " (shadow)"
	if l.Origin == headgate.FromCandidate {
		mode = " (on trial)"
	}
	return strings.Replace(text, "refuses", "would refuse", 1) + mode
}

func (r *explainReport) text() string {
	var b strings.Builder
	counters := "taken as never used: no --redis was given"
	if r.Redis != "" {
		counters = r.Redis
	}
	if !r.Time.IsZero() {
		counters += ", at " + r.Time.Format(time.RFC3339) + " by its clock"
	}
	fmt.Fprintf(&b, "%s\n\n%s", r.Summary, table(
		[]string{"request", describe(r.Request, r.Cost)},
		[]string{"rules", fmt.Sprintf("%s, version %s", strings.Join(r.Rules, ", "), r.RulesVersion)},
		[]string{"counters", counters}))
	limits := [][]string{{"RULE", "LIMIT", "COUNTED BY", "USED", "RESET", "VERDICT"}}
	keys := [][]string{{"KEY", "FIELD (HEX)", "RULE"}}
	for _, l := range r.Limits {
		reset := ""
		if l.ResetAfter > 0 {
			reset = "in " + span(time.Duration(l.ResetAfter*float64(time.Second)))
		}
		limits = append(limits, []string{l.title, l.Limit, cmp.Or(pairs(l.CountedBy), "everybody"), l.used, reset, l.Verdict})
		if l.Key != "" {
			keys = append(keys, []string{l.Key, l.Field, l.title})
		}
	}
	section := func(heading string, least int, rows [][]string) {
		if len(rows) >= least {
			fmt.Fprintf(&b, "\n%s\n%s", heading, table(rows...))
		}
	}
	section("Limits that apply", 2, limits)
	var notes, others [][]string
	for _, n := range r.Notes {
		notes = append(notes, []string{n})
	}
	for _, o := range r.NotApplied {
		others = append(others, []string{o.Rule, o.Why})
	}
	section("Notes", 1, notes)
	section("Where that is in Redis: redis-cli --no-raw HGETALL KEY", 2, keys)
	section("Rules that do not apply", 1, others)
	if r.NotShown > 0 {
		fmt.Fprintf(&b, "  and %s; --all shows them\n", count(r.NotShown, "other"))
	}
	return b.String()
}

// describe is a request as people read it: "POST /api/v1/login ip=192.0.2.1".
func describe(a headgate.Attributes, cost int64) string {
	rest := maps.Clone(a)
	for _, name := range []string{"method", "path", headgate.OtherMethod, headgate.OtherPath} {
		delete(rest, name)
	}
	text := strings.Join(strings.Fields(a["method"]+" "+a["path"]+" "+pairs(rest)), " ")
	if cost > 1 {
		text += ", cost " + grouped(cost)
	}
	return text
}
