package headgate

// refund removes what is left of a receipt's units from a settled state and returns how many whole units that was.
func (t *Terms) refund(live, settled *State, r Receipt, now int64) (units int64, given bool) {
	if t.MaxUnits == 0 || settled.Used == 0 {
		return 0, false
	}
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		back := t.unleaked(live, settled, r, now)
		t.removeFromBucket(settled, back, now)
		return back / scale, back > 0
	case FixedWindow, SlidingWindow:
		if r.Mark != settled.Time && (t.Algorithm == SlidingWindow || !t.Aligned || r.Mark < t.Start) {
			return 0, false // its window has ended
		}
		units = min(t.MaxUnits, settled.Used)
		settled.Used -= units
		return units, true
	default:
		return refundLog(settled, r.Mark, t.MaxUnits)
	}
}

// credit removes units from a settled state, no matter which charge took them, and returns how many whole units it removed. Held
// units stay held.
func (t *Terms) credit(s *State, now int64) (units int64, given bool) {
	if t.MaxUnits == 0 || t.outside(s, now) || s.Used == 0 && (t.Algorithm != SlidingWindow || s.Prev == 0) {
		return 0, false
	}
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		back := min(t.MaxUnits*scale, s.Used)
		t.removeFromBucket(s, back, now)
		if t.Algorithm == TokenBucket {
			s.Credited = max(s.Time, now)
		}
		return back / scale, true
	case FixedWindow, SlidingWindow:
		units = min(t.MaxUnits, s.Used)
		s.Used -= units
		if t.Algorithm == SlidingWindow {
			units += t.reducePrevious(s, t.MaxUnits-units, now)
		}
		return units, true
	default:
		units = creditLog(s, t.MaxUnits)
		return units, units > 0
	}
}

// outside reports whether a credit is too late for a bucket, or belongs to another window than the current one. If the clock was set
// back, an aligned fixed window has units of a later one, to which no credit belongs.
func (t *Terms) outside(s *State, now int64) bool {
	switch {
	case t.Within == 0:
		return false
	case t.bucket():
		return now > t.Within
	case t.Algorithm == FixedWindow && t.Aligned:
		return t.Within != t.Start || s.Time >= t.End
	default:
		return t.Within != s.Time
	}
}

// removeFromBucket removes millionths of units from a bucket.
func (t *Terms) removeFromBucket(s *State, back, now int64) {
	if s.Used -= back; s.Used == 0 {
		s.Time = max(s.Time, now)
	}
	if t.Algorithm == TokenBucket {
		s.Prev = (s.Prev + back) % maxExact
	}
}
