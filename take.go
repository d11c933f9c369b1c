package headgate

import "time"

// Take is the specification of counting: what a charge does to a counter's state at a time, and what it is told. It is
// pure, total and exact; every store gives the same answers. A charge that does not fit leaves the state as it was.
//
// It looks at one charge alone. What several charges of one request do together says Decide.
func (l Limit) Take(s State, c Charge, now time.Time) (State, Result) {
	c.Limit = l
	return c.take(s, micros(now), true)
}

// take judges the charge; if it fits and record is set, the returned state includes it.
func (c *Charge) take(s State, now int64, record bool) (State, Result) {
	r := Result{Time: time.UnixMicro(now).UTC()}
	t, ok := c.terms(now)
	if !ok {
		r.RetryAfter = Never
		return s, r
	}
	var live State
	if s.Expires*1_000_000 > now {
		live = s
	}
	settled := t.settle(live, now)
	switch room := t.room(live, settled, now); {
	case c.refunds():
		r.Allowed = true
		var given bool
		if settled, r.Granted, given = t.giveBack(live, settled, c.Refund, now); given {
			s, live = settled, settled
		}
	case t.Least > t.Capacity:
		r.RetryAfter = Never
	case room < t.Least:
		r.RetryAfter = until(now, live, t.fitsAt(live, settled))
	default:
		r.Allowed = true
		if t.Algorithm == LeakyBucket {
			r.Delay = until(now, live, t.emptyAt(live))
		}
		if record && t.Most > 0 {
			r.Granted = min(room, t.Most)
			settled = t.add(settled, r.Granted, now)
			s, live = settled, settled
			r.Receipt = t.receipt(settled, r.Granted)
		}
	}
	r.Remaining = max(0, t.remaining(live, settled, now))
	r.ResetAfter = until(now, live, t.unusedAt(live, settled, now))
	return s, r
}

// settle brings a state to the present: drains the bucket, rolls the window, drops lapsed entries of the log.
func (t *Terms) settle(s State, now int64) State {
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		return t.drain(s, now)
	case FixedWindow:
		return t.rollFixed(s, now)
	case SlidingWindow:
		return t.rollSliding(s, now)
	default:
		return t.prune(s, now)
	}
}

// room is how many units fit now. Of a leaky bucket it is all or nothing: only the wait counts.
func (t *Terms) room(live, settled State, now int64) int64 {
	switch t.Algorithm {
	case TokenBucket:
		return (t.Capacity*scale - settled.Used) / scale
	case LeakyBucket:
		if t.emptyAt(live)-now > t.MaxDelay {
			return 0
		}
		return t.Capacity
	case SlidingWindow:
		return t.Capacity - settled.Used - t.weigh(settled, now)
	default:
		return t.Capacity - settled.Used
	}
}

// fitsAt is when what does not fit now will.
func (t *Terms) fitsAt(live, settled State) int64 {
	switch t.Algorithm {
	case TokenBucket:
		return live.Time + ceilMulDiv(live.Used+(t.Least-t.Capacity)*scale, t.Q, t.P)
	case LeakyBucket:
		return t.emptyAt(live) - t.MaxDelay
	case FixedWindow:
		return t.fixedEnd(settled)
	case SlidingWindow:
		return t.slidingFitsAt(settled)
	default:
		return t.logFitsAt(settled)
	}
}

// add records units in a settled state.
func (t *Terms) add(s State, units, now int64) State {
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		s.Used += units * scale
		s.Expires = wholeSeconds(t.emptyAt(s))
	case FixedWindow:
		s.Used += units
		s.Expires = max(s.Expires, wholeSeconds(t.fixedEnd(s)))
		if t.Aligned {
			s.Time = max(s.Time, now)
		}
	case SlidingWindow:
		s.Used += units
		s.Expires = wholeSeconds(s.Time + 2*t.Window)
	default:
		s = addToLog(s, units, now)
		s.Expires = wholeSeconds(s.Time + t.Window)
	}
	return s
}

// receipt names the units just recorded in s.
func (t *Terms) receipt(s State, units int64) Receipt {
	r := Receipt{Units: units, Mark: s.Time, Time: s.Time}
	if t.Algorithm == TokenBucket || t.Algorithm == LeakyBucket {
		r.Mark = s.Used
	}
	return r
}

// giveBack takes what is left of a receipt out of a settled state, and says how many whole units that was. It leaves
// Expires alone: nothing may shorten that.
func (t *Terms) giveBack(live, settled State, r Receipt, now int64) (_ State, units int64, given bool) {
	if t.Most == 0 || settled.Used == 0 {
		return settled, 0, false
	}
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		back := t.unleaked(live, settled, r, now)
		settled.Used -= back
		return settled, back / scale, back > 0
	case FixedWindow, SlidingWindow:
		if r.Mark != settled.Time && (!t.Aligned || r.Mark < t.Start) {
			return settled, 0, false // it lapsed with its window
		}
		units = min(t.Most, settled.Used)
		settled.Used -= units
		return settled, units, true
	default:
		return takeFromLog(settled, r.Mark, t.Most)
	}
}

// remaining is how many units could be taken next.
func (t *Terms) remaining(live, settled State, now int64) int64 {
	if t.Algorithm == LeakyBucket {
		return t.queueRoom(settled, now)
	}
	return t.room(live, settled, now)
}

// unusedAt is when the counter will be as if never used.
func (t *Terms) unusedAt(live, settled State, now int64) int64 {
	switch {
	case t.Algorithm == TokenBucket || t.Algorithm == LeakyBucket:
		return t.emptyAt(live)
	case t.Algorithm == SlidingWindow && settled.Used > 0:
		return settled.Time + 2*t.Window
	case t.Algorithm == SlidingWindow && settled.Prev > 0:
		return settled.Time + t.Window
	case settled.Used == 0:
		return now
	case t.Algorithm == FixedWindow:
		return t.fixedEnd(settled)
	default:
		return settled.Time + t.Window
	}
}

// until is the span from now to a time at which a state changes by itself, or expires if that is sooner.
func until(now int64, s State, at int64) time.Duration {
	at = min(at, s.Expires*1_000_000)
	return time.Duration(max(0, at-now)) * time.Microsecond
}

// micros is the time in whole microseconds since 1970, within what can be counted.
func micros(t time.Time) int64 { return min(max(0, t.UnixMicro()), maxTime) }
