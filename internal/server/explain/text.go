package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
)

// Text is the report as one screen.
func (r *Report) Text() string {
	var b strings.Builder
	head := [][]string{{"request", describe(r.Request, r.Cost)}}
	if r.Server != "" {
		head = append(head, []string{"server", r.Server})
	}
	head = append(head, []string{"rules", strings.Join(append(slices.Clone(r.Rules), "version "+r.RulesVersion), ", ")},
		[]string{"counters", r.counters()})
	fmt.Fprintf(&b, "%s\n\n%s", r.Summary, wording.Table("  ", head...))
	limits := [][]string{{"RULE", "LIMIT", "COUNTED BY", "USED", "RESET", "VERDICT"}}
	keys := [][]string{{"KEY", "FIELD (HEX)", "RULE"}}
	for i := range r.Limits {
		l := &r.Limits[i]
		reset := ""
		if l.ResetAfter > 0 {
			reset = "in " + span(time.Duration(l.ResetAfter*float64(time.Second)))
		}
		by := cmp.Or(wording.Attributes(l.CountedBy), "everybody")
		limits = append(limits, []string{l.title(), l.Limit, by, l.used(), reset, l.Verdict})
		if l.Key != "" && !l.apart() {
			keys = append(keys, []string{l.Key, l.Field, l.title()})
		}
	}
	section := func(heading string, least int, rows [][]string) {
		if len(rows) >= least {
			fmt.Fprintf(&b, "\n%s\n%s", heading, wording.Table("  ", rows...))
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
		fmt.Fprintf(&b, "  and %s; --all shows them\n", wording.Count(r.NotShown, "other"))
	}
	return b.String()
}

// counters says where they are, and when they were looked at.
func (r *Report) counters() string {
	text, why := r.Redis, ""
	switch {
	case r.RedisUnavailable:
		text = r.countedApart()
		why = ": " + cmp.Or(r.Redis, "the store") + " is unavailable"
	case r.Redis != "":
	case r.Server != "":
		text = "in the server's memory"
	default:
		return "taken as never used: no --redis was given"
	}
	if !r.Time.IsZero() {
		text += ", at " + r.Time.Format(time.RFC3339) + " by its clock"
	}
	return text + why
}

// countedApart says whose numbers are shown while Redis does not answer for some of the limits.
func (r *Report) countedApart() string {
	var whose []string
	by := func(path headgate.Path) func(Limit) bool {
		return func(l Limit) bool { return l.DecidedBy == string(path) }
	}
	if slices.ContainsFunc(r.Limits, func(l Limit) bool { return !l.apart() }) {
		whose = append(whose, cmp.Or(r.Redis, "the store"))
	}
	if slices.ContainsFunc(r.Limits, by(headgate.PathLocal)) {
		whose = append(whose, "this node's local fallback share")
	}
	return cmp.Or(strings.Join(whose, " and "), "not known")
}

// title is the rule, with the limit's name if it has one.
func (l *Limit) title() string {
	names := l.Name
	if l.Origin == headgate.FromCandidate.String() {
		names = strings.TrimSpace(names + " candidate")
	}
	if names == "" {
		return l.Rule
	}
	return l.Rule + " (" + names + ")"
}

func (l *Limit) used() string {
	var text string
	switch {
	case l.Missing != "":
		text = "not asked"
	case l.DecidedBy == string(headgate.PathFailed):
		text = "not known"
	case l.DecidedBy == string(headgate.PathLocal):
		text = wording.Number(l.Remaining) + " left of the local share"
	case l.Algorithm == headgate.LeakyBucket.String():
		text = "room for " + wording.Number(l.Remaining)
	default:
		text = wording.Number(l.Used) + " of " + wording.Number(l.Capacity)
	}
	if l.Cost > 1 {
		text += ", asks " + wording.Number(l.Cost)
	}
	return text
}

// describe is a request as people read it: "POST /api/v1/login ip=192.0.2.1".
func describe(a headgate.Attributes, cost int64) string {
	rest := maps.Clone(a)
	for _, name := range []string{"method", "path", headgate.OtherMethod, headgate.OtherPath} {
		delete(rest, name)
	}
	text := strings.Join(strings.Fields(a["method"]+" "+a["path"]+" "+wording.Attributes(rest)), " ")
	if cost > 1 {
		text += ", cost " + wording.Number(cost)
	}
	return text
}

// span is a duration for people: in seconds, rounded up as Retry-After is, and in two larger units if it is long.
func span(d time.Duration) string {
	s := int64(math.Ceil(d.Seconds()))
	switch {
	case s < 120:
		return fmt.Sprintf("%d s", s)
	case s < 2*3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 2*86400:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
}
