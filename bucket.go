package headgate

// A bucket's state is its level in millionths of a unit and the time it was that full. It drains by P millionths in Q
// microseconds. Draining rounds the level up and moves the time only as far as the level really sank, so that frequent
// charges lose no more than a microsecond of refill each.

// drain is the bucket now. Time never runs backwards: if the store's clock was set back, the bucket waits for it.
func (t *Terms) drain(s State, now int64) State {
	if s.Used == 0 {
		return State{Time: max(s.Time, now), Expires: s.Expires}
	}
	elapsed := now - s.Time
	if elapsed <= 0 {
		return s
	}
	drained := floorMulDiv(elapsed, t.P, t.Q)
	if drained >= s.Used {
		return State{Time: now, Expires: s.Expires}
	}
	s.Used -= drained
	s.Time = now - elapsed%t.Q*t.P%t.Q/t.P
	return s
}

// emptyAt is when the bucket will have drained.
func (t *Terms) emptyAt(s State) int64 {
	return s.Time + ceilMulDiv(s.Used, t.Q, t.P)
}

// unleaked is how much of a receipt's units, in millionths, is still in the bucket. A bucket drains first what was in it
// first, and the receipt's Mark is the level with its own units on top. A leaky bucket gives back only to the last
// charge: those behind it were already told their delay.
func (t *Terms) unleaked(live, settled State, r Receipt, now int64) int64 {
	left := t.Most * scale
	if t.Algorithm == TokenBucket {
		left = min(left, r.Mark-floorMulDiv(max(0, now-r.Time), t.P, t.Q))
	} else if live.Used != r.Mark || live.Time != r.Time {
		return 0
	}
	return max(0, min(left, settled.Used))
}

// queueRoom is how many single units a leaky bucket would take now, one behind the other, before the delay exceeds what
// the charge is ready to wait.
func (t *Terms) queueRoom(s State, now int64) int64 {
	s = t.drain(s, now)
	room := floorMulDiv(max(0, now+t.MaxDelay-s.Time), t.P, t.Q) - s.Used
	if room < 0 {
		return 0
	}
	return room/scale + 1
}
