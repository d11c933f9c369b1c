package headgate

import "time"

// What is held is apart from what is recorded: it takes from the room that there is, and nothing else. So it means the same
// in every window, and does not leak from a bucket while nobody knows what it will come to.

// Bounds of holds.
const (
	// MaxHold is how long units may be held.
	MaxHold = time.Hour
	// MaxHolds is how many holds a counter may have at a time.
	MaxHolds = 1_000
)

// dropHolds lets go of those that have run out.
func (t *Terms) dropHolds(s *State, now int64) {
	for len(s.Log) > 0 && s.Log[0].Time <= now {
		s.Log = s.Log[1:]
	}
}

// held is how many units are held.
func (t *Terms) held(s *State) int64 {
	if t.Algorithm == SlidingLog {
		return 0
	}
	var units int64
	for _, h := range s.Log {
		units += h.Units
	}
	return units
}

// heldUntil is when the last hold runs out.
func (t *Terms) heldUntil(s *State) int64 {
	if n := len(s.Log); n > 0 && t.Algorithm != SlidingLog {
		return s.Log[n-1].Time
	}
	return 0
}

// full is true if the charge asks for one hold more than there may be.
func (t *Terms) full(s *State) bool { return t.Hold > 0 && len(s.Log) >= MaxHolds }

// hold adds a hold to a settled state and returns what it is known by.
func (t *Terms) hold(s *State, units, now int64) int64 {
	until := now + t.Hold
	at := 0
	for at < len(s.Log) && s.Log[at].Time <= until {
		if s.Log[at].Time == until {
			until++
		}
		at++
	}
	log := make([]LogEntry, 0, len(s.Log)+1)
	log = append(log, s.Log[:at]...)
	log = append(log, LogEntry{Time: until, Units: units})
	s.Log = append(log, s.Log[at:]...)
	return until
}

// release ends the hold that has the mark, if it is there.
func (t *Terms) release(s *State) bool {
	if t.Algorithm == SlidingLog {
		return false
	}
	for i, h := range s.Log {
		if h.Time == t.Mark {
			log := make([]LogEntry, 0, len(s.Log)-1)
			log = append(log, s.Log[:i]...)
			s.Log = append(log, s.Log[i+1:]...)
			return true
		}
	}
	return false
}

// fitsWith is when what does not fit now will: when enough was drained or forgotten, or enough holds have run out, or some
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
		if without.Least <= without.Capacity && (i > 0 || !t.full(settled)) {
			at := from
			if without.room(live, settled, now) < without.Least {
				at = max(at, without.fitsAt(live, settled))
			}
			if last || at < h.Time {
				return at
			}
		}
		left, from = left-h.Units, h.Time
	}
	return from
}
