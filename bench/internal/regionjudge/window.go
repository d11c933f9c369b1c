package regionjudge

import (
	"cmp"
	"maps"
	"slices"

	"github.com/headgate/headgate"
)

// judgeWindows judges a subject of a window: the units admitted in all windows with the same start. Each store says in which window of
// its own clock it counted a request, so that neither clocks nor delays matter.
func (h *History) judgeWindows(b *Bound, rule *Rule, subject string, admitted []*Record) {
	windows := h.windows(b, rule, subject, admitted)
	length, count := rule.Limit.Window.Microseconds(), rule.Limit.Count
	for _, start := range slices.Sorted(maps.Keys(windows)) {
		w := windows[start]
		var sum int64
		for _, r := range w {
			if r.Path != pathLocal {
				sum += r.Cost
			}
		}
		lost := h.lostIn(rule.Limit, start, start+length)
		b.Lost += lost
		if b.exceeds(float64(sum-lost) / float64(count)) {
			b.find("%s of %s: %d admitted in the window from %d, at most %d and %d lost", subject, rule.ID, sum, start, count, lost)
		}
		h.judgeLocal(b, rule, subject, start, w)
		if rule.Limit.Algorithm == headgate.SlidingWindow && h.sameClocks() {
			h.judgeSliding(b, rule, subject, start, w, windows[start-length], lost)
		}
	}
}

// judgeLocal judges what the nodes of a region admitted in a window while their store was down: at most the region's share, which they
// divide, and one unit for each node, because a node that does not know its rank rounds at random. At other times nodes may decide
// locally because the machine is too busy; then they reconcile and may borrow in between.
func (h *History) judgeLocal(b *Bound, rule *Rule, subject string, start int64, window []*Record) {
	for _, l := range h.Losses {
		maximum := h.share(l.Region, rule.Limit).Count + h.Nodes
		var sum int64
		for _, r := range window {
			if r.Region == l.Region && r.Path == pathLocal && r.Sent >= l.From && r.Received <= l.To {
				sum += r.Cost
			}
		}
		if sum > maximum {
			b.find("%s of %s: %d admitted by local fallback shares in %s in the window from %d, at most %d", subject, rule.ID, sum, l.Region,
				start, maximum)
		}
	}
}

// windows returns the admissions of a subject by the start of the window in which they were counted.
func (h *History) windows(b *Bound, rule *Rule, subject string, admitted []*Record) map[int64][]*Record {
	length := rule.Limit.Window.Microseconds()
	offset, known, differs := int64(0), false, false
	windows := map[int64][]*Record{}
	for _, r := range admitted {
		if r.Path != pathStore || r.Reset == 0 {
			continue
		}
		start := r.Reset - length
		switch {
		case !known:
			offset, known = start%length, true
		case start%length != offset && !differs:
			differs = true
			b.find("%s of %s: windows begin at different times: %d µs and %d µs after a multiple of their length", subject, rule.ID, offset,
				start%length)
		}
		windows[start] = append(windows[start], r)
	}
	for _, r := range admitted { // by a node, which knows the end of the window only roughly
		if r.Path == pathStore && r.Reset > 0 {
			continue
		}
		start := r.Sent + h.Skew[r.Region] - length/2
		if r.Reset > 0 {
			start = r.Reset - length
		}
		start = (start-offset+length/2)/length*length + offset
		windows[start] = append(windows[start], r)
	}
	return windows
}

// lostIn returns how many units stores may have forgotten in a window. A store counts what its region admitted and what it lent to
// others, less what it borrowed: at most its share.
func (h *History) lostIn(limit headgate.Limit, from, to int64) (units int64) {
	for _, l := range h.Losses {
		if skew := h.Skew[l.Region]; l.From+skew < to && l.To+skew >= from {
			units += h.share(l.Region, limit).Capacity()
		}
	}
	return units
}

// sameClocks reports whether the clocks of all stores agree.
func (h *History) sameClocks() bool {
	for _, skew := range h.Skew {
		if skew != 0 {
			return false
		}
	}
	return true
}

// judgeSliding judges what a sliding window promises within a window: its units so far, and those of the previous window, weighted by
// the part of it that is less than a window ago, stay within the limit.
func (h *History) judgeSliding(b *Bound, rule *Rule, subject string, start int64, window, previous []*Record, lost int64) {
	length := rule.Limit.Window.Microseconds()
	lost += h.lostIn(rule.Limit, start-length, start)
	before, sum := int64(0), int64(0)
	for _, r := range previous {
		if r.Path != pathLocal {
			before += r.Cost
		}
	}
	end := func(r *Record) int64 {
		_, to := h.span(r)
		return to
	}
	for _, r := range slices.SortedFunc(slices.Values(window), func(a, b *Record) int { return cmp.Compare(end(a), end(b)) }) {
		if r.Path == pathLocal {
			continue
		}
		sum += r.Cost
		weight := float64(before) * float64(max(0, start+length-end(r))) / float64(length)
		if b.exceeds((float64(sum-lost) + weight) / float64(rule.Limit.Count)) {
			b.find("%s of %s: %d admitted in the window from %d until %d, and %.2f in the window before it, at most %d and %d lost", subject,
				rule.ID, sum, start, end(r), weight, rule.Limit.Count, lost)
			return
		}
	}
}
