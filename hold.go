package headgate

import "time"

// Units on hold are kept apart from recorded ones: they reduce what is available, and nothing else. So a hold means the same
// in every window, and does not leak from a bucket before its cost is known.
//
// A counter knows its holds by the time at which they end: State.Log has one entry for each such time, soonest first. Ends
// are rounded up to ticks, so that there are few of them however many holds there are. A single hold is known only by its
// number; the store keeps its units and its end under that number, and hands them back in State.Hold when a charge
// releases it.

// Bounds of holds.
const (
	// MaxHold is how long units may be held.
	MaxHold = time.Hour
	// MaxHolds is how many holds a counter may have at a time.
	MaxHolds = 100_000

	// holdTick is the shortest tick, a 64th of a second. The others are this times a power of two.
	holdTick = 15_625
	// ticksPerHold is how many ticks a hold lasts at least, if they are not the shortest: it ends up to an eighth later than
	// was asked for.
	ticksPerHold = 16
)

// Hold is one hold: the units, and when they come back by themselves, in microseconds since 1970.
type Hold struct {
	Units int64
	End   int64
}

// tickOf returns the tick that the end of a hold is rounded up to.
func tickOf(hold int64) int64 {
	tick := int64(holdTick)
	for tick*ticksPerHold < hold {
		tick *= 2
	}
	return tick
}

// dropHolds removes the holds that have ended.
func (t *Terms) dropHolds(s *State, now int64) {
	for len(s.Log) > 0 && s.Log[0].Time <= now {
		s.Log = s.Log[1:]
	}
}

// held returns how many units are on hold.
func (t *Terms) held(s *State) int64 {
	if t.Algorithm == SlidingLog {
		return 0
	}
	var units int64
	for _, h := range s.Log {
		units += int64(h.Units)
	}
	return units
}

// heldUntil returns when the last hold ends.
func (t *Terms) heldUntil(s *State) int64 {
	if n := len(s.Log); n > 0 && t.Algorithm != SlidingLog {
		return s.Log[n-1].Time
	}
	return 0
}

// full reports whether the charge asks for one hold more than there may be.
func (t *Terms) full(s *State) bool { return t.Hold > 0 && entries(s.Log) >= MaxHolds }

// hold adds a hold to a settled state and returns its number and its end. Numbers are times, so that none comes twice, not
// even after a counter was forgotten.
func (t *Terms) hold(s *State, units, now int64) (number, end int64) {
	number = max(now, s.LastHold+1)
	end = now + t.Hold + t.HoldTick - 1
	end -= end % t.HoldTick
	s.LastHold = number
	at := 0
	for at < len(s.Log) && s.Log[at].Time < end {
		at++
	}
	joined, rest := LogEntry{Time: end, Units: uint32(units), Count: 1}, at
	if at < len(s.Log) && s.Log[at].Time == end {
		joined.Units += s.Log[at].Units
		joined.Count += s.Log[at].Count
		rest++
	}
	s.Log = splice(s.Log, at, rest, joined)
	return number, end
}

// release takes a hold out of a settled state and reports whether it was there.
func (t *Terms) release(s *State, h Hold, now int64) bool {
	if h.Units <= 0 || h.End <= now || t.Algorithm == SlidingLog {
		return false
	}
	for i, e := range s.Log {
		if e.Time != h.End {
			continue
		}
		if e.Count > 1 {
			s.Log = splice(s.Log, i, i+1, LogEntry{Time: e.Time, Units: e.Units - min(e.Units, uint32(h.Units)), Count: e.Count - 1})
		} else {
			s.Log = splice(s.Log, i, i+1)
		}
		return true
	}
	return false
}

// fitsWith returns when what does not fit now will: when enough was drained or forgotten, or enough holds have ended, or some
// of both.
func (t *Terms) fitsWith(live, settled *State, now int64) int64 {
	if t.Algorithm == SlidingLog || len(settled.Log) == 0 {
		return t.fitsAt(live, settled)
	}
	without := *t
	left, from := t.held(settled), now
	for i, h := range append(settled.Log[:len(settled.Log):len(settled.Log)], LogEntry{}) {
		last := i == len(settled.Log)
		without.Capacity = t.Capacity - left
		if without.MinUnits <= without.Capacity && (i > 0 || !t.full(settled)) {
			at := from
			if without.available(live, settled, now) < without.MinUnits {
				at = max(at, without.fitsAt(live, settled))
			}
			if last || at < h.Time {
				return at
			}
		}
		left, from = left-int64(h.Units), h.Time
	}
	return from
}
