package judge

import (
	"cmp"
	"slices"
)

// judgeBudget judges the units admitted for each subject. The run is too short for a limit to refill a unit.
func judgeBudget(t *trial) {
	var smallest, largest, left int64
	leased, runs := 0, 0
	for _, name := range t.names() {
		b := t.budget(name)
		if b.local {
			continue
		}
		if runs++; runs == 1 {
			smallest = b.admitted
		}
		smallest, largest, left, leased = min(smallest, b.admitted), max(largest, b.admitted), left+b.left, leased+b.leased
		if over := b.admitted - b.limit.overshoot(b.last); over > b.units {
			t.find("%s: %s admitted %d, at most %d", name, b.limit, over, b.units)
		}
		if b.admitted+b.left < b.units {
			t.find("%s: %s admitted %d and at most %d to callers that left, at least %d", name, b.limit, b.admitted, b.left, b.units)
		}
		b.judgeCounts(t, name)
	}
	if runs < t.check.Runs {
		t.find("%s: %d subjects decided by the store, at least %d", t.label(), runs, t.check.Runs)
	}
	if leased < t.check.Leased {
		t.find("%s: %d requests admitted by lease, at least %d", t.label(), leased, t.check.Leased)
	}
	t.figure("%s %d to %d in %d runs, %d requests by lease, %d units to callers that left", t.label(), smallest, largest, runs, leased, left)
}

// judgeCounts compares the final counts with the units admitted, and with each other.
func (b *budget) judgeCounts(t *trial, name string) {
	if len(b.peeks) == 0 {
		t.find("%s: no peek", name)
	}
	first := int64(-1)
	for _, peek := range b.peeks {
		limit := t.header.Limits[peek.Limit]
		used := limit.queue() - peek.Remaining
		if used < min(b.admitted, limit.queue()) || used > b.admitted+b.left {
			t.find("%s: %s counted %d, admitted %d and at most %d to callers that left", name, limit, used, b.admitted, b.left)
		}
		if first < 0 {
			first = used
		}
		if used != first {
			t.find("%s: one limit counted %d, another %d", name, first, used)
		}
	}
}

// budget is what a subject used of its smallest limit.
type budget struct {
	limit Limit
	// units is how much the limit allows at once.
	units int64
	// admitted units, and those requested by callers that left.
	admitted, left int64
	last           *Record // the last admission
	leased         int
	local          bool // a node decided without the store
	peeks          []*Record
}

func (t *trial) budget(name string) (b budget) {
	for _, r := range t.subjects[name] {
		for _, i := range r.applied() {
			if l := t.header.Limits[i]; b.units == 0 || l.queue() < b.units {
				b.limit, b.units = l, l.queue()
			}
		}
		switch {
		case r.Op == OpPeek:
			b.peeks = append(b.peeks, r)
		case r.Note == NoteLeft:
			b.left += r.Cost
		case r.Path == "lease" && r.Allowed:
			b.leased++
		case r.Path == "local" || r.Path == "failed":
			b.local = true
		}
	}
	admitted := admissions(t.subjects[name])
	if b.admitted = units(admitted); len(admitted) > 0 {
		b.last = slices.MaxFunc(admitted, func(a, b *Record) int {
			_, first := a.Span()
			_, second := b.Span()
			return cmp.Or(cmp.Compare(first, second), cmp.Compare(a.Cost, b.Cost))
		})
	}
	return b
}

// queue returns how many units the limit admits at once, one by one.
func (l Limit) queue() int64 {
	if l.Algorithm == LeakyBucket {
		return l.MaxDelay*l.Count/l.Window + 1
	}
	return l.Capacity()
}

// overshoot returns by how much the last admission may have exceeded the limit: a leaky bucket admits a request of any cost if the
// units before it are not delayed too long.
func (l Limit) overshoot(last *Record) int64 {
	if l.Algorithm == LeakyBucket && last != nil {
		return last.Cost - 1
	}
	return 0
}
