package judge

import (
	"fmt"
	"slices"
	"strings"
)

// judgeCeiling looks for windows and spans with more than the limit. It counts an admission in a window only if it
// certainly fell into it, so that what it finds is so.
func judgeCeiling(t *trial) {
	worst := map[string]float64{}
	for _, name := range t.names() {
		limit, admitted := t.limit(name), admissions(t.subjects[name])
		if t.check.Local > 0 {
			admitted = t.setLocalApart(name, limit, admitted)
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
	t.figure("%s, units beyond the limit at worst: %s", t.label(), strings.Join(texts, ", "))
}

// setLocalApart returns the admissions that were not by a local share, and judges those that were.
func (t *trial) setLocalApart(name string, limit Limit, admitted []*Record) (others []*Record) {
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
		if most := t.check.Local * float64(limit.Count); float64(n) > most {
			t.find("%s: %d admitted by local shares in the window from %d, at most %g", name, n, start, most)
		}
	}
	return others
}

// overLimit returns by how many units admissions exceed the limit where they do the most; negative if there was room.
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
	most, window := int64(0), int64(0)
	for start, n := range fixedWindows(limit, admitted) {
		if n > most {
			most, window = n, start
		}
	}
	return float64(most - limit.Count), fmt.Sprintf("in the window from %d", window)
}

// fixedWindows returns what was certainly admitted in each window, by the window's start.
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

// worstLog goes by the latest time of each admission, which for a sliding log is the store's: it is never leased.
func worstLog(limit Limit, admitted []*Record) float64 {
	events := slices.SortedStableFunc(slices.Values(admitted), byStart)
	var most, sum int64
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
		most = max(most, sum)
	}
	return float64(most - limit.Count)
}

// worstSliding weighs what was certainly admitted in the window before by the least that it can still have counted.
func worstSliding(limit Limit, admitted []*Record) (over float64, where string) {
	events := slices.SortedStableFunc(slices.Values(admitted), byStart)
	start, _ := events[0].Span()
	over = float64(-limit.Count)
	// The windows, of which each has its own admissions, in the order of their answers.
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
