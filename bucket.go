package headgate

// A bucket's state is its level in millionths of a unit and the time of that level. It drains by P millionths in Q microseconds.
// Draining rounds the level up and advances the time only as far as the level actually dropped, so that frequent charges lose at
// most a microsecond of refill each.

// bucket reports whether the algorithm is a bucket.
func (t *Terms) bucket() bool { return t.Algorithm == TokenBucket || t.Algorithm == LeakyBucket }

// drain advances the bucket to now. If the store's clock was set back, the bucket does not drain until the clock catches up.
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

// emptyAt returns when the bucket will be empty.
func (t *Terms) emptyAt(s *State) int64 {
	return s.Time + ceilMulDiv(s.Used, t.Q, t.P)
}

// unleaked returns how much of a receipt's units, in millionths, is still in the bucket. A bucket drains first in, first out, and
// the receipt's Mark is the level with the receipt's units on top: they remain as far as that level has neither leaked nor been
// reduced by refunds of other charges since. Refunds of other charges took those charges' units, not these, unless they were
// credits. A leaky bucket gives back only to the last charge: requests queued behind an earlier one already have their delay.
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
		gone += maxExact // it wrapped; or this is another bucket, and the sum exceeds any level
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

// queueSpace returns how many single units a leaky bucket that can take one would queue now, one after the other, until the delay
// exceeds the charge's MaxDelay.
func (t *Terms) queueSpace(settled *State, now int64) int64 {
	space := floorMulDiv(max(0, now+t.MaxDelay-settled.Time), t.P, t.Q) - settled.Used
	return max(0, space)/scale + 1
}
