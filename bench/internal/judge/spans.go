package judge

import (
	"cmp"
	"slices"
)

// worstSpan returns by how much admissions exceed burst + rate × span in the worst span. An admission counts in a span only if
// it certainly fell into it, that is, if both request and response did. The result is negative if every span stays below.
func worstSpan(admitted []*Record, burst, rate float64) (excess float64) {
	if len(admitted) == 0 {
		return -burst
	}
	events := slices.SortedStableFunc(slices.Values(admitted), byEnd)
	starts := make([]int64, len(events))
	for i, e := range events {
		starts[i], _ = e.Span()
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	zero := starts[0]
	// sums has for each start the units certainly admitted since, plus the units that the rate allowed before it.
	sums := make([]float64, len(starts))
	for i, start := range starts {
		sums[i] = rate * float64(start-zero)
	}
	excess = -burst
	for _, e := range events {
		from, to := e.Span()
		last, _ := slices.BinarySearch(starts, from)
		begun, _ := slices.BinarySearch(starts, to+1)
		maximum := 0.0
		for i := range sums[:begun] {
			if i <= last {
				sums[i] += float64(e.Cost)
			}
			if sums[i] > maximum {
				maximum = sums[i]
			}
		}
		excess = max(excess, maximum-rate*float64(to-zero)-burst)
	}
	return excess
}

// byStart orders records by the earliest time at which they were decided.
func byStart(a, b *Record) int {
	aFrom, _ := a.Span()
	bFrom, _ := b.Span()
	return cmp.Compare(aFrom, bFrom)
}

// byEnd orders records by the latest time at which they were decided.
func byEnd(a, b *Record) int {
	_, aTo := a.Span()
	_, bTo := b.Span()
	return cmp.Compare(aTo, bTo)
}
