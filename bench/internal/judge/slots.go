package judge

import (
	"cmp"
	"math"
	"slices"
)

const (
	// renewal is when a node is due to renew its leases, as a fraction 1/renewal of the lease. A node that did not run for half of a
	// lease may therefore have lost its units.
	renewal = 3
	// repairTime is how long after a loss of the store's counters nodes may take to report their units, in addition to lease ÷ renewal.
	repairTime = 1_000_000
)

// judgeSlots judges what a backend had in flight for each subject whenever a request reached it. Requests that the store admitted, or
// a node with units of its own, were at most the limit; while the store's counters are lost, twice the limit. What nodes admitted
// without the store, by their shares of the limit, comes to at most the limit in addition. Requests of a node that did not run for half
// of a lease count only until then. Finally, nothing is in use.
func judgeSlots(t *trial) {
	var requests, apart, local, lost, full int
	highest := 0.0
	for _, name := range t.names() {
		s := slots{trial: t, name: name, limit: t.limit(name)}
		s.judge()
		requests, apart, local, lost = requests+len(s.uses), apart+s.apart, local+s.local, lost+s.lost
		highest = max(highest, float64(s.highest)/float64(s.limit.Count))
		if s.highest == s.limit.Count {
			full++
		}
		peeks := slices.DeleteFunc(slices.Clone(t.subjects[name]), func(r *Record) bool { return r.Op != OpPeek })
		switch {
		case len(peeks) == 0:
			t.find("%s: %s: the final count is unknown", name, s.limit)
		case peeks[len(peeks)-1].Remaining != s.limit.Count:
			t.find("%s: %s: %d units in use at the end", name, s.limit, s.limit.Count-peeks[len(peeks)-1].Remaining)
		}
	}
	if full == 0 {
		t.find("%s: no limit was used up", t.label())
	}
	t.figure("%s: %d requests in flight at most %.2f of %d limits, %d of them used up; apart: %d of nodes that did not run, %d without the store, "+
		"%d after the loss of its counters", t.label(), requests, highest, len(t.subjects), full, apart, local, lost)
}

// slots judges one subject.
type slots struct {
	*trial
	name  string
	limit Limit
	uses  []use

	highest int64 // units in flight that the store admitted, where nothing was lost
	// Requests that did not count until their end, that nodes admitted by their shares, and that began after a loss.
	apart, local, lost int
}

// use is the time for which the units of a request count.
type use struct {
	*Record
	until int64
}

// local reports whether the node admitted the request by its share of the limit.
func (u use) local() bool { return u.Path == "local" }

func (s *slots) judge() {
	for _, r := range s.subjects[s.name] {
		if r.Op == OpUse {
			s.uses = append(s.uses, use{r, s.countsUntil(r)})
		}
	}
	ends := slices.Clone(s.uses)
	slices.SortFunc(ends, func(a, b use) int { return cmp.Compare(a.until, b.until) })
	var stored, local int64
	add := func(u use, units int64) {
		if u.local() {
			local += units
		} else {
			stored += units
		}
	}
	over := 0
	for _, u := range s.uses {
		if u.until < u.Received {
			s.apart++
		}
		if u.until <= u.Sent {
			continue
		}
		for len(ends) > 0 && ends[0].until <= u.Sent {
			if ends[0].until > ends[0].Sent {
				add(ends[0], -ends[0].Cost)
			}
			ends = ends[1:]
		}
		add(u, u.Cost)
		maximum := s.limit.Count
		switch {
		case s.afterLoss(u.Record):
			s.lost++
			maximum *= 2
		case u.local():
			s.local++
		default:
			s.highest = max(s.highest, stored)
		}
		if !u.local() && stored > maximum || local > s.limit.Count {
			if over++; over <= 3 {
				s.find("%s: %s: %d units in flight at %d, and %d admitted without the store; at most %d, and %d", s.name, s.limit, stored, u.Sent,
					local, maximum, s.limit.Count)
			}
		}
	}
	if over > 3 {
		s.find("%s: %s: %d more times", s.name, s.limit, over-3)
	}
}

// countsUntil returns when the units of a request cease to count: at its end, unless its node did not run for half of a lease.
func (s *slots) countsUntil(r *Record) int64 {
	until := r.Received
	for _, e := range s.events {
		if e.Process != r.Process || e.Note != NoteKill && e.Note != NoteStop {
			continue
		}
		end := e.Received
		if e.Note == NoteKill {
			end = math.MaxInt64
		}
		lost := e.Sent + s.limit.Window/2
		for _, f := range s.events {
			if f.Note == NoteFlush && f.Sent >= e.Sent { // the node does not report its units again
				lost = min(lost, f.Sent)
			}
		}
		if r.Decided <= lost && end >= lost {
			until = min(until, lost)
		}
	}
	return until
}

// afterLoss reports whether the request was decided while the store's counters may have lacked units: they were lost, or could not be
// renewed for half of a lease.
func (s *slots) afterLoss(r *Record) bool {
	return slices.ContainsFunc(s.events, func(e *Record) bool {
		lost := e.Note == NoteFlush || e.Note == NoteStall && e.Received-e.Sent >= s.limit.Window/2
		return lost && r.Decided >= e.Sent && r.Decided <= e.Received+s.limit.Window/renewal+repairTime
	})
}
