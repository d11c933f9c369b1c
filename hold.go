package headgate

import "time"

// Held units are kept separate from recorded units: they only reduce what is available. So a hold has the same effect in every
// window and does not leak from a bucket before its cost is known.
//
// A counter groups its holds by the time at which they end: State.Log has one entry for each such time, earliest first. Ends are
// rounded up to ticks, so that there are few entries even if there are many holds. A single hold is identified only by its number;
// the store keeps its units and its end under that number and passes them in State.Hold when a charge releases the hold.

// Bounds of holds.
const (
	// MaxHold is the longest time for which units may be held.
	MaxHold = time.Hour
	// MaxHolds is the largest number of holds that a counter may have at a time.
	MaxHolds = 100_000

	// holdTick is the shortest tick in microseconds, a 64th of a second. Longer ticks are holdTick times a power of two.
	holdTick = 15_625
	// ticksPerHold bounds the length of longer ticks: a hold ends up to an eighth of its length later than requested.
	ticksPerHold = 16
)

// Hold is one hold: its units, and when it expires, in microseconds since 1970.
type Hold struct {
	Units int64
	End   int64
}

// tickOf returns the tick that the end of a hold of this length is rounded up to.
func tickOf(hold int64) int64 {
	tick := int64(holdTick)
	for tick*ticksPerHold < hold {
		tick *= 2
	}
	return tick
}

// dropHolds removes the holds that have expired.
func (t *Terms) dropHolds(s *State, now int64) {
	for len(s.Log) > 0 && s.Log[0].Time <= now {
		s.Log = s.Log[1:]
	}
}

// held returns how many units are held.
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

// heldUntil returns when the last hold ends, or 0 if there is none.
func (t *Terms) heldUntil(s *State) int64 {
	if n := len(s.Log); n > 0 && t.Algorithm != SlidingLog {
		return s.Log[n-1].Time
	}
	return 0
}

// full reports whether the charge requests a hold and the counter already has MaxHolds.
func (t *Terms) full(s *State) bool { return t.Hold > 0 && entries(s.Log) >= MaxHolds }

// hold adds a hold to a settled state and returns its number and its end. Numbers are times, so that none is used twice, not even
// after the counter was dropped.
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

// release removes a hold from a settled state and reports whether it existed.
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

// fitsWithHoldsAt returns when a charge that does not fit now will fit: when enough units have drained or left the window, enough
// holds have expired, or a combination of both.
func (t *Terms) fitsWithHoldsAt(live, settled *State, now int64) int64 {
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
