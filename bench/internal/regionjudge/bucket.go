package regionjudge

import (
	"cmp"
	"math"
	"slices"
)

// judgeBucket judges a subject of a bucket: in each span of time, burst + rate × span.
func (h *History) judgeBucket(b *Bound, rule *Rule, subject string, admitted []*Record) {
	limit := rule.Limit
	burst := float64(limit.Capacity())
	rate := float64(limit.Count) / float64(limit.Window.Microseconds())
	var spans []span
	for _, r := range admitted {
		if r.Path != pathLocal {
			from, to := h.span(r)
			spans = append(spans, span{from, to, float64(r.Cost)})
		}
	}
	var lost []span
	for _, l := range h.Losses {
		units := h.share(l.Region, limit).Capacity() // at most its share: see lostIn
		b.Lost += units
		lost = append(lost, span{l.From, l.To, float64(units)})
	}
	allowed := burst
	if !rule.Strict {
		allowed += leased * burst
	}
	if excess := worstSpan(spans, lost, allowed, rate); b.exceeds(1 + excess/burst) {
		b.find("%s of %s: burst + rate × span exceeded by %.2f in a span", subject, rule.ID, excess)
	}
}

// span is units at a time between from and to.
type span struct {
	from, to int64
	units    float64
}

// worstSpan returns by how much admissions exceed burst + rate × length, and what was lost, in the worst span of time. An admission
// counts in a span only if it certainly happened within it; a loss counts in each span in which it may have happened. The result is
// negative if every span stays below.
func worstSpan(admitted, lost []span, burst, rate float64) (excess float64) {
	if len(admitted) == 0 {
		return -burst
	}
	admitted = slices.SortedFunc(slices.Values(admitted), func(a, b span) int { return cmp.Compare(a.to, b.to) })
	lost = slices.SortedFunc(slices.Values(lost), func(a, b span) int { return cmp.Compare(a.from, b.from) })
	starts := make([]int64, len(admitted))
	for i, a := range admitted {
		starts[i] = a.from
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	// sums has, for each start of a span, the units that are certainly in the span which ends with the current admission, plus what the
	// rate allowed before the start, less what was lost.
	sums := make([]float64, len(starts))
	for i, start := range starts {
		sums[i] = rate * float64(start-starts[0])
	}
	excess = math.Inf(-1)
	for _, a := range admitted {
		for ; len(lost) > 0 && lost[0].from <= a.to; lost = lost[1:] {
			last, found := slices.BinarySearch(starts, lost[0].to)
			if found {
				last++
			}
			for i := range sums[:last] {
				sums[i] -= lost[0].units
			}
		}
		worst := math.Inf(-1)
		last, _ := slices.BinarySearch(starts, a.from)
		for i := range sums[:last+1] {
			sums[i] += a.units
			worst = max(worst, sums[i])
		}
		excess = max(excess, worst-rate*float64(a.to-starts[0])-burst)
	}
	return excess
}
