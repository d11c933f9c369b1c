package judge

import (
	"fmt"
	"slices"
)

const (
	// skew is the largest difference between the store's clock and a node's on one machine, in microseconds. Two times of the
	// store have no skew.
	skew = 200
	// overshoot is how much later than the store's the end of a node's RetryAfter may be, in microseconds: the node cannot know
	// how long ago the store decided. Where the store's responses took longer, the slowest of them is the bound.
	overshoot = 5_000
	// certain is the bound below which the judge can derive a limit's counter from the history alone: larger limits may be
	// leased, and are then charged before their units are spent.
	certain = 40
)

// judgeWaits follows each subject, which one caller charges through one node. A denial names the time at which the same request
// would be allowed: a request certainly made after it must be allowed, one certainly made before it must be denied, and no later
// denial may name an earlier time. At least Least requests must have been retried after their wait.
func judgeWaits(t *trial) {
	var w waits
	w.trial = t
	for _, name := range t.names() {
		w.follow(name, t.subjects[name])
	}
	if w.late > 0 || w.early > 0 || w.moved > 0 || w.short > 0 {
		t.find("%s: after %d denials %d retries were denied, %d were allowed early, %d waits ended earlier than before, %d were too short",
			t.label(), w.denials, w.late, w.early, w.moved, w.short)
	}
	if w.denials == 0 || float64(w.retries) < t.check.Least {
		t.find("%s: %d denials and %d retries prove nothing", t.label(), w.denials, w.retries)
	}
	t.figure("%s: %d denials; %d retries after RetryAfter, %d denied; %d before it, %d allowed; %d ends moved earlier; %d shorter than the model's",
		t.label(), w.denials, w.retries, w.late, w.tries, w.early, w.moved, w.short)
}

type waits struct {
	*trial
	denials, retries, tries   int
	late, early, moved, short int
}

// due is the time at which a request is allowed, according to a denial.
type due struct {
	earliest, latest int64
	exact            bool  // on the store's clock
	overshoot        int64 // if it is not
}

// past reports whether a request was certainly made after the named time.
func (d due) past(r *Record) bool {
	from, _ := r.Span()
	return from > d.latest+d.skew(r.exact())
}

// future reports whether a request was certainly made before the named time, at its earliest.
func (d due) future(r *Record) bool {
	_, to := r.Span()
	return to < d.atLeast(r.exact())
}

// atLeast returns the named time at its earliest, for a comparison with an exact time or an inexact one.
func (d due) atLeast(exact bool) int64 {
	if !d.exact {
		return d.earliest - d.overshoot
	}
	return d.earliest - d.skew(exact)
}

func (d due) skew(exact bool) int64 {
	if d.exact && exact {
		return 0
	}
	return skew
}

// dueRange has the earliest and the latest due of all denials of one cost since the last admission.
type dueRange struct{ first, last due }

func (all *dueRange) add(d due) {
	if all.first.latest == 0 || d.latest < all.first.latest {
		all.first = d
	}
	if all.last.latest == 0 || d.atLeast(true) > all.last.atLeast(true) {
		all.last = d
	}
}

func (w *waits) follow(name string, records []*Record) {
	ends := map[int64]*dueRange{}
	counters, exact := w.counters(records)
	slowest := int64(overshoot)
	for _, r := range records {
		if r.Op != OpCheck || r.Error != "" {
			continue
		}
		if r.exact() {
			slowest = max(slowest, r.Received-r.Sent)
		}
		from, to := r.Span()
		before := ends[r.Cost]
		if r.Allowed {
			w.judgeAllowed(name, r, before)
			clear(ends) // the charge changes all waits
			for _, i := range r.applied() {
				counters[i].add(from, r.Cost)
			}
			continue
		}
		w.denials++
		if r.RetryAfter < 0 {
			over := func(i int) bool { return r.Cost > w.header.Limits[i].Capacity() }
			if !slices.ContainsFunc(r.applied(), over) {
				w.late++
				w.example(w.late, "%s: cost %d denied without a RetryAfter by %s", name, r.Cost, w.header.Limits[r.Limit])
			}
			continue
		}
		now := due{from + r.RetryAfter, to + r.RetryAfter, r.exact(), slowest}
		if before == nil {
			before = &dueRange{}
			ends[r.Cost] = before
		} else {
			w.judgeDenied(name, r, before, now)
		}
		if exact {
			w.compare(name, r, counters)
		}
		before.add(now)
	}
}

func (w *waits) judgeDenied(name string, r *Record, before *dueRange, now due) {
	from, _ := r.Span()
	switch {
	case before.first.past(r):
		w.retries++
		w.late++
		w.example(w.late, "%s: cost %d denied %s after its RetryAfter, for another %s (path %s)", name, r.Cost,
			seconds(from-before.first.latest), seconds(r.RetryAfter), r.Path)
	case before.last.future(r):
		w.tries++
		if least := before.last.atLeast(now.exact); now.latest < least {
			w.moved++
			w.example(w.moved, "%s: cost %d: the end of RetryAfter (path %s) is %s earlier than that of a denial before", name, r.Cost, r.Path,
				seconds(before.last.earliest-now.latest))
		}
	}
}

func (w *waits) judgeAllowed(name string, r *Record, before *dueRange) {
	if before == nil {
		return
	}
	_, to := r.Span()
	if before.first.past(r) {
		w.retries++
	}
	if before.last.future(r) {
		w.tries++
		w.early++
		w.example(w.early, "%s: cost %d allowed %s before its RetryAfter", name, r.Cost, seconds(before.last.earliest-to))
	}
}

// compare compares a RetryAfter with the judge's own counters. It must not be shorter than the longest wait of all limits.
func (w *waits) compare(name string, r *Record, counters map[int]counter) {
	_, to := r.Span()
	truth := int64(0)
	for _, i := range r.applied() {
		truth = max(truth, counters[i].wait(to, r.Cost))
	}
	if truth > r.RetryAfter+10*skew {
		w.short++
		w.example(w.short, "%s: cost %d: RetryAfter is %s (path %s), must be %s", name, r.Cost, seconds(r.RetryAfter), r.Path,
			seconds(truth))
	}
}

// counters returns a counter for each limit of a subject. They are exact if no limit is leased.
func (w *waits) counters(records []*Record) (counters map[int]counter, exact bool) {
	counters, exact = map[int]counter{}, true
	for _, r := range records {
		for _, i := range r.applied() {
			if counters[i] == nil {
				counters[i] = w.header.Limits[i].newCounter()
			}
			exact = exact && w.header.Limits[i].Capacity() < certain
		}
	}
	return counters, exact
}

// example adds the first two findings of a kind.
func (w *waits) example(n int, format string, args ...any) {
	if n <= 2 {
		w.find("%s", fmt.Sprintf(format, args...))
	}
}

// judgeHeaders checks Retry-After against the documented rule: the wait rounded up to seconds, at least 1, plus a spread of up to
// a tenth of it, bounded to 1 to 300 seconds.
func judgeHeaders(t *trial) {
	denials, wrong := 0, 0
	for _, name := range t.names() {
		for _, r := range t.subjects[name] {
			if r.Op != OpCheck || r.Allowed || r.Error != "" {
				continue
			}
			denials++
			least := max(1, ceil(r.RetryAfter, 1_000_000))
			maximum := least + min(max(least/10, 1), 300)
			if r.Header < least || r.Header > maximum {
				wrong++
				t.find("%s: Retry-After %d for a wait of %s: must be %d to %d", name, r.Header, seconds(r.RetryAfter), least, maximum)
			}
		}
	}
	if denials == 0 {
		t.find("%s: nothing was denied", t.label())
	}
	t.figure("%s: %d of %d wrong", t.label(), wrong, denials)
}
