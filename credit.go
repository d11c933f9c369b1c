package headgate

// credit takes units out of a settled state, whoever was charged them, and returns how many whole ones. What is held stays
// held.
func (t *Terms) credit(s *State, now int64) (units int64, given bool) {
	if t.Most == 0 || s.Used == 0 && (t.Algorithm != SlidingWindow || s.Prev == 0) {
		return 0, false
	}
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		back := min(t.Most*scale, s.Used)
		if s.Used -= back; s.Used == 0 {
			s.Time = max(s.Time, now)
		}
		if t.Algorithm == TokenBucket {
			s.Prev = (s.Prev + back) % maxExact
			s.Credited = max(s.Time, now)
		}
		return back / scale, true
	case FixedWindow:
		units = min(t.Most, s.Used)
		s.Used -= units
		return units, true
	case SlidingWindow:
		units = min(t.Most, s.Used)
		s.Used -= units
		return units + t.lighten(s, t.Most-units, now), true
	default:
		units = creditLog(s, t.Most)
		return units, units > 0
	}
}
