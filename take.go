package headgate

import (
	"slices"
	"time"
)

// Take returns the state of a counter after a charge at a time, and the charge's result. It is the specification of counting: pure,
// total and exact, and every store returns the same results. A charge that does not fit leaves the state unchanged.
//
// Take considers one charge only. Decide specifies how several charges of one request are decided together.
func (l Limit) Take(s State, c Charge, now time.Time) (State, Result) {
	c.Limit = l
	s.Log = slices.Clip(s.Log) // appending must not write into the caller's log
	var r Result
	c.take(&s, &r, micros(now), true)
	return s, r
}

// take decides the charge. If it fits and record is set, take records it in the state.
func (c *Charge) take(s *State, r *Result, now int64, record bool) {
	*r = Result{Time: time.UnixMicro(now).UTC()}
	var t Terms
	if !t.read(c, now) {
		r.RetryAfter = Never
		return
	}
	live := s.live(now)
	if t.Absent > 0 && live.Expires == 0 {
		t.presume(&live, now)
	}
	settled := live // the state at now
	t.settle(&settled, now)
	changed := false
	switch available := t.available(&live, &settled, now) - t.held(&settled); {
	case t.Algorithm == Concurrency && c.Always():
		r.Allowed = true
		r.Granted, changed = t.operate(&settled, now)
	case c.refunds():
		r.Allowed = true
		r.Granted, changed = t.refund(&live, &settled, c.Refund, now)
	case c.credits():
		r.Allowed = true
		r.Granted, changed = t.credit(&settled, now)
	case c.forces():
		r.Allowed = true
		r.Granted, changed = t.force(&live, &settled, c.releases(), now)
	case t.MinUnits > t.Capacity:
		r.RetryAfter = Never
	case t.Algorithm == Concurrency && (available < t.MinUnits || t.noSlot(&settled)):
		r.RetryAfter = Unknown
	case available < t.MinUnits || t.full(&settled):
		r.RetryAfter = until(now, &live, t.fitsWithHoldsAt(&live, &settled, now))
	case t.Hold > 0:
		r.Allowed = true
		if changed = record && t.MaxUnits > 0; changed {
			r.Granted = min(available, t.MaxUnits)
			r.Receipt.Units = r.Granted
			r.Receipt.Mark, r.Receipt.Time = t.hold(&settled, r.Granted, now)
		}
	default:
		r.Allowed = true
		if t.Algorithm == LeakyBucket {
			r.Delay = time.Duration(max(0, t.emptyAt(&live)-now)) * time.Microsecond
		}
		if changed = record && t.MaxUnits > 0; changed {
			r.Granted = min(available, t.MaxUnits)
			t.add(&settled, r.Granted, now)
			r.Receipt = Receipt{Units: r.Granted, Mark: settled.Time}
			if t.Algorithm == Concurrency {
				r.Receipt.Mark = t.Seq
			}
		}
	}
	after := &live
	if changed {
		settled.Expires = max(settled.Expires, wholeSeconds(t.heldUntil(&settled)))
		*s = settled
		after = &settled
		if t.Age > 0 && t.bucket() {
			t.drain(&settled, now)
		}
	}
	r.Remaining = max(0, t.remaining(after, &settled, now)-t.held(&settled))
	reset, held := t.resetAt(after, &settled, now), t.heldUntil(&settled)
	r.ResetAfter = until(now, after, max(reset, held))
	r.UnusedAfter = r.ResetAfter
	if t.Algorithm == SlidingWindow && settled.Used > 0 {
		r.UnusedAfter = until(now, after, max(reset+t.Window, held))
	}
	if t.Algorithm == Concurrency {
		r.HolderUnits = t.holderUnits(&settled)
	}
	if r.Receipt.Units > 0 && t.bucket() && t.Hold == 0 {
		r.Receipt.Mark, r.Receipt.Time, r.Receipt.Back = settled.Used, settled.Time, settled.Prev
		r.Receipt.Empty = now + int64(r.ResetAfter/time.Microsecond)
	}
}

// presume sets the state of a counter that does not exist to what it counts as: Absent units, used now.
func (t *Terms) presume(s *State, now int64) {
	s.Time = now
	if t.Algorithm == SlidingWindow {
		s.Time = t.Start
	}
	t.add(s, t.Absent, now)
}

// settle advances a state to now: it drains the bucket, rolls the window, and drops expired log entries, holds and holders.
func (t *Terms) settle(s *State, now int64) {
	if len(s.Log) > 0 && t.Algorithm != SlidingLog {
		t.dropHolds(s, now)
	}
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		t.drain(s, now)
	case FixedWindow:
		t.rollFixed(s, now)
	case SlidingWindow:
		t.rollSliding(s, now)
	case Concurrency:
		t.dropHolders(s, now)
	default:
		t.prune(s, now)
	}
}

// available returns how many units fit now. For a leaky bucket that is its capacity or 0: only the delay matters.
func (t *Terms) available(live, settled *State, now int64) int64 {
	switch t.Algorithm {
	case TokenBucket:
		return (t.Capacity*scale - settled.Used) / scale
	case LeakyBucket:
		if t.emptyAt(live)-now > t.MaxDelay {
			return 0
		}
		return t.Capacity
	case SlidingWindow:
		return t.Capacity - settled.Used - t.previousWeight(settled, now)
	default:
		return t.Capacity - settled.Used
	}
}

// fitsAt returns when a charge that does not fit now will fit.
func (t *Terms) fitsAt(live, settled *State) int64 {
	switch t.Algorithm {
	case TokenBucket:
		return live.Time + ceilMulDiv(live.Used+(t.MinUnits-t.Capacity)*scale, t.Q, t.P)
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

// add records units in a settled state. Expires never decreases, so that no receipt outlives its state.
func (t *Terms) add(s *State, units, now int64) {
	var needed int64
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		s.Used += units * scale
		needed = t.emptyAt(s)
	case FixedWindow:
		s.Used += units
		needed = t.fixedEnd(s)
		if t.Aligned {
			s.Time = max(s.Time, now)
		}
	case SlidingWindow:
		s.Used += units
		needed = s.Time + 2*t.Window
	case Concurrency:
		t.acquire(s, units, now)
	default:
		addToLog(s, units, now, t.Age == 0)
		needed = s.Time + t.Window
	}
	s.Expires = max(s.Expires, wholeSeconds(needed))
}

// remaining returns how many units could be taken next.
func (t *Terms) remaining(live, settled *State, now int64) int64 {
	available := t.available(live, settled, now)
	if t.Algorithm == LeakyBucket && available > 0 {
		return t.queueSpace(settled, now)
	}
	return available
}

// resetAt returns when a bucket is empty, the last charge leaves a log, the last lease of a concurrency limit or the current window
// ends; now if the counter is unused.
// The charges of a sliding window still count in the next window, with decreasing weight.
func (t *Terms) resetAt(live, settled *State, now int64) int64 {
	switch {
	case t.bucket():
		return t.emptyAt(live)
	case settled.Used == 0 && (t.Algorithm != SlidingWindow || settled.Prev == 0):
		return now
	case t.Algorithm == FixedWindow:
		return t.fixedEnd(settled)
	case t.Algorithm == Concurrency:
		return settled.Expires * 1_000_000
	default:
		return settled.Time + t.Window
	}
}

// until returns the time from now to at, or to the expiry of the state if that is earlier.
func until(now int64, s *State, at int64) time.Duration {
	at = min(at, s.Expires*1_000_000)
	return time.Duration(max(0, at-now)) * time.Microsecond
}

// micros returns the time in whole microseconds since 1970, clamped to 0 to maxTime.
func micros(t time.Time) int64 { return min(max(0, t.UnixMicro()), maxTime) }
