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

// Text returns the report as one screen of text.
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
	holders := [][]string{{"RULE", "NODE", "UNITS", "LEASE ENDS", "HOLDER"}}
	unnamed := "unknown"
	if r.Redis == "" {
		unnamed = "this server"
	}
	regions := [][]string{RegionHeading()}
	keys := [][]string{{"KEY", "FIELD (HEX)", "RULE"}}
	for i := range r.Limits {
		l := &r.Limits[i]
		reset := ""
		if l.ResetAfter > 0 && l.Algorithm != headgate.Concurrency.String() { // it is when the last lease ends, which says nothing
			reset = "in " + span(time.Duration(l.ResetAfter*float64(time.Second)))
		}
		by := cmp.Or(wording.Attributes(l.CountedBy), "all requests")
		if l.Home != nil {
			by += ", " + l.Home.String()
		}
		limits = append(limits, []string{l.title(), l.Limit, by, l.used(), reset, l.Verdict})
		for _, h := range l.Holders {
			ends := "in " + span(h.Until.Sub(r.Time))
			holders = append(holders, []string{l.title(), cmp.Or(h.Node, unnamed), wording.Number(h.Units), ends, h.ID})
		}
		if l.Regions != nil {
			regions = append(regions, l.Regions.RegionRows(l.title())...)
		}
		if l.Key != "" && !l.withoutRedis() {
			in := ""
			if region := l.homeElsewhere(); region != "" {
				in = ", in region " + region
			}
			keys = append(keys, []string{l.Key, l.Field, l.title() + in})
		}
	}
	section := func(heading string, minRows int, rows [][]string) {
		if len(rows) >= minRows {
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
	section(RegionsTitle, 2, regions)
	section("Notes", 1, notes)
	section("Units in use, by node; a live node renews its lease", 2, holders)
	section("Counters in Redis: redis-cli --no-raw HGETALL KEY", 2, keys)
	section("Rules that do not apply", 1, others)
	if r.NotShown > 0 {
		fmt.Fprintf(&b, "  and %s; --all shows them\n", wording.Count(r.NotShown, "other"))
	}
	return b.String()
}

// counters returns where the counters are, and when they were read.
func (r *Report) counters() string {
	store := cmp.Or(r.Redis, "the store")
	text, why := r.Redis, r.unavailable(store, "region ")
	switch {
	case why != "":
		text, why = r.sources(store), ": "+why
	case r.Redis != "" && len(r.Limits) > 0:
		text = r.sources(store)
	case r.Redis != "":
	case r.Server != "":
		text = "in the server's memory"
	default:
		return "assumed unused: no --redis given"
	}
	if !r.Time.IsZero() {
		text += ", at " + r.Time.Format(time.RFC3339) + " by its clock"
	}
	return text + why
}

// sources returns where the numbers shown come from.
func (r *Report) sources(store string) string {
	sources := r.stores(store, "region ", func(l *Limit) bool { return !l.withoutRedis() })
	if slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.DecidedBy == string(headgate.PathLocal) }) {
		sources = append(sources, "this node's local fallback share")
	}
	return cmp.Or(wording.List(sources), "unknown")
}

// title returns the rule's ID, with the limit's name if it has one.
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

// used returns the text of the column USED.
func (l *Limit) used() string {
	var text string
	switch {
	case l.Missing != "":
		text = "not checked"
	case l.DecidedBy == string(headgate.PathFailed):
		text = "unknown"
	case l.DecidedBy == string(headgate.PathLocal):
		text = wording.Number(l.Remaining) + " left of the local share"
	case l.Algorithm == headgate.LeakyBucket.String():
		text = wording.Number(l.Remaining) + " free in the queue"
	default:
		text = wording.Number(l.Used) + " of " + wording.Number(l.Capacity)
		if l.Algorithm == headgate.Concurrency.String() {
			text += " in flight"
		}
		if l.Regions != nil {
			text += ", " + l.Regions.Total()
		}
	}
	if l.Cost > 1 {
		text += ", cost " + wording.Number(l.Cost)
	}
	return text
}

// describe returns a request in readable form: "POST /api/v1/login ip=192.0.2.1".
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

// span returns a duration in readable form: in seconds, rounded up as Retry-After is, and in two larger units from 2 minutes on.
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
