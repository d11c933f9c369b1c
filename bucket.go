package headgate

// A bucket's state is its level in millionths of a unit and the time it was that full. It drains by P millionths in Q
// microseconds. Draining rounds the level up and moves the time only as far as the level really sank, so that frequent
// charges lose no more than a microsecond of refill each.

func (t *Terms) bucket() bool { return t.Algorithm == TokenBucket || t.Algorithm == LeakyBucket }

// drain brings the bucket to now. Time never runs backwards: if the store's clock was set back, the bucket waits for it.
func (t *Terms) drain(s *State, now int64) {
	elapsed := now - s.Time
	if elapsed <= 0 {
		return
	}
	drained, rest := mulDiv(elapsed, t.P, t.Q)
	if drained >= s.Used {
		s.Used, s.Time = 0, now
		return
	}
	s.Used -= drained
	s.Time = now
	if rest >= t.P {
		s.Time -= rest / t.P
	}
}

// emptyAt is when the bucket will have drained.
func (t *Terms) emptyAt(s *State) int64 {
	return s.Time + ceilMulDiv(s.Used, t.Q, t.P)
}

// unleaked returns how much of a receipt's units, in millionths, is still in the bucket. A bucket drains first what was in it
// first, and the receipt's Mark is the level with its own units on top: they are left as far as that level has neither leaked
// nor been given back to others since. What others were given back were their own units, not these, unless it was a credit.
// A leaky bucket gives back only to the last charge: those behind it already have their delay.
func (t *Terms) unleaked(live, settled *State, r Receipt, now int64) int64 {
	left := t.MaxUnits * scale
	if t.Algorithm == LeakyBucket {
		if live.Used != r.Mark || live.Time != r.Time {
			return 0
		}
		return min(left, settled.Used)
	}
	gone := settled.Prev - r.Back
	if gone < 0 {
		gone += maxExact // it wrapped, or this is another bucket: then it is more than any level
	}
	level := t.Mark - gone
	if r.Time > live.Credited {
		level = max(level, t.Own)
	}
	if elapsed := now - r.Time; elapsed > 0 {
		leaked, rest := mulDiv(elapsed, t.P, t.Q)
		level -= leaked
		if rest > 0 {
			level--
		}
	}
	return max(0, min(left, level, settled.Used))
}

// queueSpace returns how many single units a leaky bucket that has room for one would take now, one behind the other, before the
// delay exceeds what the charge is ready to wait.
func (t *Terms) queueSpace(settled *State, now int64) int64 {
	space := floorMulDiv(max(0, now+t.MaxDelay-settled.Time), t.P, t.Q) - settled.Used
	return max(0, space)/scale + 1
}
