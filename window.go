package headgate

// rollFixed brings the window to now; one not yet charged begins now.
func (t *Terms) rollFixed(s *State, now int64) {
	over := now >= s.Time+t.Window
	if t.Aligned {
		over = s.Time < t.Start
	}
	if over || s.Expires == 0 {
		*s = State{Time: now, Log: s.Log, LastHold: s.LastHold, Hold: s.Hold}
	}
}

// fixedEnd is where a settled window ends.
func (t *Terms) fixedEnd(s *State) int64 {
	if t.Aligned {
		return t.End
	}
	return s.Time + t.Window
}

// rollSliding brings the pair of windows to now. The first begins with the first charge; the next ones follow it without
// a gap.
func (t *Terms) rollSliding(s *State, now int64) {
	switch {
	case s.Expires == 0 || now >= s.Time+2*t.Window:
		*s = State{Time: now, Log: s.Log, LastHold: s.LastHold, Hold: s.Hold}
	case now >= s.Time+t.Window:
		s.Time, s.Used, s.Prev = s.Time+t.Window, 0, s.Used
	}
}

// weigh is what the previous window still counts, rounded up.
func (t *Terms) weigh(s *State, now int64) int64 {
	return (s.Prev*t.ticksLeft(s, now) + t.PerWindow - 1) / t.PerWindow
}

// ticksLeft returns how many ticks the present window has left, at least one.
func (t *Terms) ticksLeft(s *State, now int64) int64 {
	return min((s.Time+t.Window-now+t.Tick-1)/t.Tick, t.PerWindow)
}

// lighten takes as much out of the previous window as makes its weight sink by units, or to zero, and returns by how many it
// did. A unit of the count weighs at most one, so that the weight can be made any smaller number.
func (t *Terms) lighten(s *State, units, now int64) int64 {
	weight := t.weigh(s, now)
	units = min(units, weight)
	if units > 0 {
		s.Prev = (weight - units) * t.PerWindow / t.ticksLeft(s, now)
	}
	return units
}

// slidingFitsAt is when the weight of the past has sunk far enough: in this window, or else in the next, where what this
// one was charged is the past.
func (t *Terms) slidingFitsAt(s *State) int64 {
	if left := t.Capacity - s.Used - t.MinUnits; left >= 0 {
		return s.Time + t.Window - left*t.PerWindow/s.Prev*t.Tick
	}
	left := (t.Capacity - t.MinUnits) * t.PerWindow / s.Used
	return s.Time + t.Window + max(0, t.Window-left*t.Tick)
}
