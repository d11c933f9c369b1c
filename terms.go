package headgate

import (
	"encoding/binary"
	"time"
)

// Terms are the numbers of a charge that the arithmetic uses: Limit.Take computes with them, and a store that decides in another
// language passes them to its translation of Limit.Take. Times are whole microseconds since 1970, and spans whole microseconds.
type Terms struct {
	// Algorithm is the limit's algorithm. Aligned is true for windows that follow the clock or the calendar.
	Algorithm Algorithm
	Aligned   bool
	// At least MinUnits must fit, and up to MaxUnits of what fits are taken; MaxUnits is 0 for a peek. A refund or a credit
	// gives back up to MaxUnits.
	MinUnits, MaxUnits int64
	// Capacity is the largest cost that can ever be granted at once. A charge with MinUnits above it never fits.
	Capacity int64
	// P millionths of a unit drain from a bucket in Q microseconds; P × Q is at most 2^52.
	P, Q int64
	// MaxDelay is the longest delay by a leaky bucket that the charge accepts.
	MaxDelay int64
	// Hold is how long to hold the units, with the end rounded up to a multiple of HoldTick; 0 means that they are recorded.
	Hold, HoldTick int64
	// HoldEnd is the end of the hold that the charge releases.
	HoldEnd int64
	// Age is how long ago the units of a forced charge were taken.
	Age int64
	// Mark is the mark of a refund's receipt, or the number of the hold to release. If the rate of a token bucket was lowered since
	// the charge, the mark is capped at what drains at the new rate until the time at which it would have drained at the old rate.
	Mark int64
	// Within is when the window began that a credit belongs to, or the last time at which a bucket may be credited; 0 means any.
	Within int64
	// Absent is how many units a token bucket or an aligned window that does not exist counts as used.
	Absent int64
	// Own is how much of a token bucket's Mark consists of the refund's own units, in millionths.
	Own int64
	// Window is the span of a window or log, or the lease of a concurrency limit, and Offset the shift of the subject's aligned windows.
	Window, Offset int64
	// Start and End bound the aligned window that contains the time; End is exclusive.
	Start, End int64
	// Tick is the resolution of a sliding window, and PerWindow the number of ticks in a window: at most a million, so that a count
	// times a number of ticks stays exact.
	Tick, PerWindow int64
	// Slots is the operation on a concurrency limit, Holder its holder and Seq its number. Whatever gives units back is ReleaseSlots.
	Slots  SlotOp
	Holder uint64
	Seq    int64
}

// neverFits is larger than any Capacity.
const neverFits = 2 * MaxCost

// maxAge is longer than any charge counts.
const maxAge = 4 * 366 * 24 * time.Hour

// Terms returns the terms of the charge at a time, which matters only for aligned windows. It returns false if the limit is invalid.
func (c *Charge) Terms(now time.Time) (t Terms, ok bool) {
	ok = t.read(c, micros(now))
	return t, ok
}

// read sets t to the terms of a charge and reports whether its limit is valid.
func (t *Terms) read(c *Charge, now int64) bool {
	l := &c.Limit
	if l.validate() != nil {
		return false
	}
	t.Algorithm, t.Capacity, t.MaxUnits, t.Window = l.Algorithm, l.capacity(), c.Cost, l.window()
	switch {
	case c.refunds():
		t.MaxUnits = max(0, min(c.Cost, c.Refund.Units, MaxCost))
		t.Mark = c.Refund.Mark
	case c.Always():
		t.MaxUnits = max(0, min(c.Cost, MaxCost))
		if c.credits() {
			if l.Algorithm != SlidingLog {
				t.Within = min(max(0, c.Within), maxTime)
			}
			if t.MaxUnits == MaxCost {
				t.MaxUnits = maxBack
			}
		}
		t.Mark, t.HoldEnd = c.Release.Mark, c.Release.Time
		if c.forces() {
			t.Age = max(0, int64(min(c.Age, maxAge)/time.Microsecond))
		}
	case c.Cost < 0 || c.Cost > MaxCost:
		t.MinUnits, t.MaxUnits = neverFits, 0
	case c.Cost == 0:
		t.MinUnits = 1
	case c.AtLeast > 0:
		t.MinUnits = min(c.AtLeast, c.Cost)
	default:
		t.MinUnits = c.Cost
	}
	if c.Holds() {
		t.Hold = max(1, int64(min(c.Hold, MaxHold)/time.Microsecond))
		t.HoldTick = tickOf(t.Hold)
	}
	switch l.Algorithm {
	case TokenBucket:
		t.P, t.Q = l.rate()
		if c.refunds() {
			t.Mark = min(t.Mark, floorMulDiv(max(0, c.Refund.Empty-c.Refund.Time), t.P, t.Q))
			t.Own = min(t.Mark, min(c.Refund.Units, MaxCost)*scale)
		}
	case LeakyBucket:
		t.P, t.Q = l.rate()
		if c.Whole.Count > 0 { // the count of a share only expresses its rate
			t.Capacity = max(1, floorMulDiv(l.Count, c.Whole.window(), t.Window))
		}
		// Capped so that the queue stays below maxUsed after one more charge.
		t.MaxDelay = min(int64(c.MaxDelay/time.Microsecond), floorMulDiv((maxUsed-MaxCost)*scale, t.Q, t.P), maxWait)
		t.MaxDelay = max(0, t.MaxDelay)
	case FixedWindow:
		t.Aligned = l.Align != FromFirst || l.Calendar != NoCalendar
		t.align(c, now)
	case Concurrency:
		t.Slots, t.Holder, t.Seq = c.slotOp(), c.Holder, min(max(0, c.Seq), maxExact)
		t.Mark, t.HoldEnd, t.Age = 0, 0, 0
	case SlidingWindow:
		t.Tick = (t.Window + 999_999) / 1_000_000
		t.PerWindow = (t.Window + t.Tick - 1) / t.Tick
		if t.Aligned = l.Align != FromFirst; t.Aligned {
			t.align(c, now)
		}
	}
	if (l.Algorithm == TokenBucket || t.Aligned) && !c.refunds() {
		t.Absent = min(max(0, c.Absent), MaxCost)
	}
	return true
}

// align sets the window that contains now.
func (t *Terms) align(c *Charge, now int64) {
	if c.Limit.Calendar != NoCalendar {
		start, end := c.Limit.calendarBounds(time.UnixMicro(now))
		t.Start, t.End = start.UnixMicro(), end.UnixMicro()
		return
	}
	if c.Limit.Align == OnClockSpread {
		t.Offset = int64(binary.LittleEndian.Uint64(c.Subject[8:]) % uint64(t.Window))
	}
	since := now - t.Offset + t.Window // never negative
	t.Start = since - since%t.Window + t.Offset - t.Window
	t.End = t.Start + t.Window
}
