package headgate

import "time"

// force records units in full in a settled state, up to maxUsed, at the time when they were taken. If the charge releases a hold
// that does not exist but has not expired either, the hold was released before, and nothing is recorded.
func (t *Terms) force(live, settled *State, releases bool, now int64) (units int64, changed bool) {
	if releases {
		changed = t.release(settled, live.Hold, now)
		if !changed && t.HoldEnd > now {
			return 0, false
		}
	}
	if units = t.record(live, settled, now); units > 0 {
		changed = true
	}
	if changed { // a window that has just rolled must not expire before its holds
		settled.Expires = max(settled.Expires, live.Expires)
	}
	return units, changed
}

// record adds units to a settled state as if it had been done when they were taken, as far as they still count, and returns how
// many it added. It does not change what has happened since: a bucket or window that has changed since then records the units at
// the time of that change.
func (t *Terms) record(live, settled *State, now int64) int64 {
	at := max(0, now-t.Age)
	if !t.counts(settled, at, now) {
		return 0
	}
	switch fresh := settled.Expires == 0; {
	case t.bucket():
		settled.Time, settled.Used = live.Time, live.Used
		t.drain(settled, at)
	case t.Aligned || !fresh:
	case at+t.Window > now && (t.Algorithm == SlidingWindow || t.Algorithm == FixedWindow):
		settled.Time = at
	case t.Algorithm == SlidingWindow:
		settled.Time = at + t.Window
	}
	used, before := settled.Used, t.Algorithm == SlidingWindow && t.Age > 0 && at < settled.Time
	switch {
	case t.bucket():
		used = (used + scale - 1) / scale
	case before:
		used = settled.Prev
	}
	units := min(t.MaxUnits, maxUsed-used)
	switch {
	case units <= 0:
		return 0
	case before:
		settled.Prev += units
		settled.Expires = max(settled.Expires, wholeSeconds(settled.Time+t.Window))
	default:
		t.add(settled, units, at)
	}
	return units
}

// counts reports whether units taken at a time still count in a settled state.
func (t *Terms) counts(s *State, at, now int64) bool {
	switch {
	case t.bucket() || t.Age == 0:
		return true
	case t.Algorithm == FixedWindow && t.Aligned:
		return at >= t.Start
	case t.Algorithm == SlidingWindow && s.Expires == 0 && !t.Aligned:
		return at+2*t.Window > now
	case t.Algorithm == SlidingWindow:
		return at >= s.Time-t.Window
	default:
		return at+t.Window > now
	}
}

// Since returns what the charge's counter has recorded between two of its states, as far as it still counts: forced charges, with
// their age, that record the same units in another store. after must have been derived from before, under the charge's limit.
//
// A bucket has no times, only a level, so that its units have an age of 0. A sliding window has two spans; units taken in a span are
// as old as the middle of the span.
func (c *Charge) Since(before, after State, now time.Time) []Charge {
	at := micros(now)
	var t Terms
	if !t.read(&Charge{Subject: c.Subject, Limit: c.Limit}, at) {
		return nil
	}
	before, after = before.live(at), after.live(at)
	t.settle(&before, at)
	t.settle(&after, at)
	var taken []Charge
	add := func(units, when int64) {
		if units > 0 {
			taken = append(taken, Charge{
				Subject: c.Subject, Counter: c.Counter, Limit: c.Limit, Cost: units, Force: true,
				Age: time.Duration(max(0, at-when)) * time.Microsecond,
			})
		}
	}
	units := after.Used - before.Used
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		add((units+scale/2)/scale, at)
	case FixedWindow:
		add(units, after.Time)
	case SlidingWindow:
		add(units, after.Time+t.Window/2)
		add(after.Prev-before.Prev, after.Time-t.Window/2)
	default:
		known := map[int64]int64{}
		for _, e := range before.Log {
			known[e.Time] = int64(e.Units)
		}
		for _, e := range after.Log {
			add(int64(e.Units)-known[e.Time], e.Time)
		}
	}
	return taken
}
