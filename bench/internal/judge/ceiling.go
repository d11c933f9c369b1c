package judge

import (
	"fmt"
	"slices"
	"strings"
)

// judgeCeiling looks for windows and spans with more admissions than the limit. It counts an admission in a window only if it
// certainly fell into it, so that it reports no false positives.
func judgeCeiling(t *trial) {
	worst := map[string]float64{}
	for _, name := range t.names() {
		limit, admitted := t.limit(name), admissions(t.subjects[name])
		if t.check.Local > 0 {
			admitted = t.splitLocal(name, limit, admitted)
		}
		over, where := overLimit(limit, admitted)
		allowed := 0.0
		if limit.Algorithm == TokenBucket {
			allowed = t.check.Allowance * float64(limit.Capacity())
		}
		if over > allowed+1e-6 {
			t.find("%s: %s exceeded by %.3f %s, at most %g", name, limit, over, where, allowed)
		}
		if old, ok := worst[limit.Algorithm]; !ok || over > old {
			worst[limit.Algorithm] = over
		}
	}
	var texts []string
	for _, algorithm := range []string{TokenBucket, FixedWindow, SlidingWindow, SlidingLog} {
		if over, ok := worst[algorithm]; ok {
			texts = append(texts, fmt.Sprintf("%s %+.2f", algorithm, over))
		}
	}
	t.figure("%s, units over the limit at worst: %s", t.label(), strings.Join(texts, ", "))
}

// splitLocal judges the admissions by a local fallback share and returns the others.
func (t *trial) splitLocal(name string, limit Limit, admitted []*Record) (others []*Record) {
	var local []*Record
	for _, r := range admitted {
		if r.Path == "local" {
			local = append(local, r)
		} else {
			others = append(others, r)
		}
	}
	if len(local) == 0 {
		return others
	}
	t.figure("%s: %d admitted by local shares", name, units(local))
	for start, n := range fixedWindows(limit, local) {
		if maximum := t.check.Local * float64(limit.Count); float64(n) > maximum {
			t.find("%s: %d admitted by local shares in the window from %d, at most %g", name, n, start, maximum)
		}
	}
	return others
}

// overLimit returns by how many units admissions exceed the limit at worst; negative if they stay below it.
func overLimit(limit Limit, admitted []*Record) (over float64, where string) {
	switch {
	case len(admitted) == 0:
		return float64(-limit.Count), ""
	case limit.Algorithm == TokenBucket:
		return worstSpan(admitted, float64(limit.Capacity()), float64(limit.Count)/float64(limit.Window)), "in a span"
	case limit.Algorithm == SlidingLog:
		return worstLog(limit, admitted), "in a span of the window's length"
	case limit.Algorithm == SlidingWindow:
		return worstSliding(limit, admitted)
	}
	maximum, window := int64(0), int64(0)
	for start, n := range fixedWindows(limit, admitted) {
		if n > maximum {
			maximum, window = n, start
		}
	}
	return float64(maximum - limit.Count), fmt.Sprintf("in the window from %d", window)
}

// fixedWindows returns the units that were certainly admitted in each window, by the window's start.
func fixedWindows(limit Limit, admitted []*Record) map[int64]int64 {
	windows := map[int64]int64{}
	if limit.Clock {
		for _, r := range admitted {
			from, to := r.Span()
			if start := from - from%limit.Window; to < start+limit.Window {
				windows[start] += r.Cost
			}
		}
		return windows
	}
	events := slices.SortedStableFunc(slices.Values(admitted), byStart)
	start, _ := events[0].Span()
	for _, r := range events {
		from, to := r.Span()
		// A window begins with a charge that the store decided, which has an exact time.
		if from == to && from >= start+limit.Window {
			start = from
		}
		if from >= start && to < start+limit.Window {
			windows[start] += r.Cost
		}
	}
	return windows
}

// worstLog uses the latest time of each admission, which is the store's: a sliding log is never leased.
func worstLog(limit Limit, admitted []*Record) float64 {
	events := slices.SortedStableFunc(slices.Values(admitted), byStart)
	var maximum, sum int64
	from := 0
	for _, r := range events {
		_, to := r.Span()
		sum += r.Cost
		for {
			oldest, _ := events[from].Span()
			if oldest > to-limit.Window {
				break
			}
			sum -= events[from].Cost
			from++
		}
		maximum = max(maximum, sum)
	}
	return float64(maximum - limit.Count)
}

// worstSliding weighs the units that were certainly admitted in the previous window by the smallest weight that they can have had.
func worstSliding(limit Limit, admitted []*Record) (over float64, where string) {
	events := slices.SortedStableFunc(slices.Values(admitted), byStart)
	start, _ := events[0].Span()
	over = float64(-limit.Count)
	// The admissions of the current and the previous window, in the order of their responses.
	var window, before []*Record
	finish := func() {
		slices.SortStableFunc(window, byEnd)
		previous, sum := float64(units(before)), int64(0)
		for _, r := range window {
			_, to := r.Span()
			sum += r.Cost
			weight := previous * float64(start+limit.Window-to) / float64(limit.Window)
			if more := float64(sum) + weight - float64(limit.Count); more > over {
				over, where = more, fmt.Sprintf("in the window from %d", start)
			}
		}
	}
	for _, r := range events {
		from, to := r.Span()
		if from >= start+limit.Window {
			finish()
			if from >= start+2*limit.Window {
				start, before, window = from, nil, nil
			} else {
				start, before, window = start+limit.Window, window, nil
			}
		}
		if to < start+limit.Window {
			window = append(window, r)
		}
	}
	finish()
	return over, where
}
