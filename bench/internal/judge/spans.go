package judge

import (
	"cmp"
	"slices"
)

// worstSpan returns by how much admissions exceed burst + rate × span in the span in which they do so the most. An
// admission counts in a span only if it certainly fell into it: question and answer both do. The result is negative if
// every span has room.
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
	tree := newMaxTree(len(starts), func(i int) float64 { return rate * float64(starts[i]-zero) })
	excess = -burst
	for _, e := range events {
		from, to := e.Span()
		last, _ := slices.BinarySearch(starts, from)
		tree.add(last, float64(e.Cost))
		begun, _ := slices.BinarySearch(starts, to+1)
		excess = max(excess, tree.max(begun-1)-rate*float64(to-zero)-burst)
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

// maxTree keeps numbers, adds to all up to an index, and finds the largest of them.
type maxTree struct {
	size int
	// largest of each subtree, without what was added to the subtrees that contain it.
	largest, added []float64
}

func newMaxTree(n int, value func(int) float64) *maxTree {
	size := 1
	for size < n {
		size *= 2
	}
	t := &maxTree{size: size, largest: make([]float64, 2*size), added: make([]float64, 2*size)}
	for i := range size {
		t.largest[size+i] = value(min(i, n-1))
	}
	for i := size - 1; i > 0; i-- {
		t.largest[i] = max(t.largest[2*i], t.largest[2*i+1])
	}
	return t
}

// max returns the largest of the numbers 0 to last.
func (t *maxTree) max(last int) float64 { return t.maxWithin(1, 0, t.size-1, last) }

func (t *maxTree) maxWithin(node, from, to, last int) float64 {
	if to <= last {
		return t.largest[node]
	}
	middle := (from + to) / 2
	most := t.maxWithin(2*node, from, middle, last)
	if last > middle {
		most = max(most, t.maxWithin(2*node+1, middle+1, to, last))
	}
	return most + t.added[node]
}

// add adds to the numbers 0 to last.
func (t *maxTree) add(last int, amount float64) { t.addWithin(1, 0, t.size-1, last, amount) }

func (t *maxTree) addWithin(node, from, to, last int, amount float64) {
	switch {
	case from > last:
		return
	case to <= last:
		t.largest[node] += amount
		t.added[node] += amount
		return
	}
	middle := (from + to) / 2
	t.addWithin(2*node, from, middle, last, amount)
	t.addWithin(2*node+1, middle+1, to, last, amount)
	t.largest[node] = max(t.largest[2*node], t.largest[2*node+1]) + t.added[node]
}
