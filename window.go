package headgate

// rollFixed advances the window to now. A window that was not yet charged begins now.
func (t *Terms) rollFixed(s *State, now int64) {
	ended := now >= s.Time+t.Window
	if t.Aligned {
		ended = s.Time < t.Start
	}
	if ended || s.Expires == 0 {
		*s = State{Time: now, Log: s.Log, LastHold: s.LastHold, Hold: s.Hold}
	}
}

// fixedEnd returns the end of a settled window.
func (t *Terms) fixedEnd(s *State) int64 {
	if t.Aligned {
		return t.End
	}
	return s.Time + t.Window
}

// rollSliding advances the current and the previous window to now. The first window begins with the first charge, unless windows are
// aligned; the next ones follow without a gap.
func (t *Terms) rollSliding(s *State, now int64) {
	switch {
	case t.Aligned:
		t.rollAligned(s)
	case s.Expires == 0 || now >= s.Time+2*t.Window:
		*s = State{Time: now, Log: s.Log, LastHold: s.LastHold, Hold: s.Hold}
	case now >= s.Time+t.Window:
		s.Time, s.Used, s.Prev = s.Time+t.Window, 0, s.Used
	}
}

// rollAligned advances an aligned sliding window.
func (t *Terms) rollAligned(s *State) {
	if s.Expires > 0 {
		t.alignWindow(s)
	}
	switch {
	case s.Expires == 0 || s.Time <= t.Start-2*t.Window:
		*s = State{Time: t.Start, Log: s.Log, LastHold: s.LastHold, Hold: s.Hold}
	case s.Time <= t.Start-t.Window:
		s.Time, s.Used, s.Prev = t.Start, 0, s.Used
	}
}

// alignWindow aligns a window that was counted under another alignment or length. It counts as the aligned window in which it began and
// ended, or else as the next one, since it is unknown when its units were taken. It ended midway between its start and its expiry.
func (t *Terms) alignWindow(s *State) {
	into := (s.Time - t.Start) % t.Window
	if into == 0 {
		return
	}
	if into < 0 {
		into += t.Window
	}
	next := s.Time - into + t.Window
	if s.Time+s.Expires*1_000_000 <= 2*next {
		next -= t.Window
	}
	s.Time = next
}

// previousWeight returns how many units the previous window still counts, rounded up.
func (t *Terms) previousWeight(s *State, now int64) int64 {
	return (s.Prev*t.ticksLeft(s, now) + t.PerWindow - 1) / t.PerWindow
}

// ticksLeft returns how many ticks the current window has left, at least one.
func (t *Terms) ticksLeft(s *State, now int64) int64 {
	return min((s.Time+t.Window-now+t.Tick-1)/t.Tick, t.PerWindow)
}

// reducePrevious reduces the count of the previous window such that its weight drops by units, or to zero, and returns by how many
// it dropped. A unit of the count weighs at most one, so that the weight can be reduced to any smaller number.
func (t *Terms) reducePrevious(s *State, units, now int64) int64 {
	weight := t.previousWeight(s, now)
	units = min(units, weight)
	if units > 0 {
		s.Prev = (weight - units) * t.PerWindow / t.ticksLeft(s, now)
	}
	return units
}

// slidingFitsAt returns when the weight of the previous window has dropped far enough: in the current window, or else in the next
// window, for which the current one is the previous.
func (t *Terms) slidingFitsAt(s *State) int64 {
	if left := t.Capacity - s.Used - t.MinUnits; left >= 0 {
		return s.Time + t.Window - left*t.PerWindow/s.Prev*t.Tick
	}
	left := (t.Capacity - t.MinUnits) * t.PerWindow / s.Used
	return s.Time + t.Window + max(0, t.Window-left*t.Tick)
}
