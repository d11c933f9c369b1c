package headgate_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// tape is where a history takes its choices from: random bytes in a test, the fuzzer's in a fuzz target. When it is
// used up, every choice is the first.
type tape []byte

func randomTape(rng *rand.Rand, words int) tape {
	var t tape
	for range words {
		t = binary.LittleEndian.AppendUint64(t, rng.Uint64())
	}
	return t
}

func (t *tape) below(n int) int {
	if len(*t) == 0 {
		return 0
	}
	b := (*t)[0]
	*t = (*t)[1:]
	return int(b) % n
}

// number has any size up to a limit, small ones as often as large ones.
func (t *tape) number(limit int64) int64 {
	var n int64
	for range t.below(8) {
		n = n<<8 | int64(t.below(256))
	}
	return n % (limit + 1)
}

func pick[T any](t *tape, from ...T) T { return from[t.below(len(from))] }

// limit is any valid one.
func (t *tape) limit(zones []*time.Location) headgate.Limit {
	l := headgate.Limit{Algorithm: headgate.Algorithm(t.below(5))}
	t.renumber(&l)
	if l.Algorithm == headgate.FixedWindow {
		switch kind := t.below(8); {
		case kind < 3:
			l.Align = headgate.Align(kind)
		default:
			l.Window = 0
			l.Calendar = headgate.Calendar(kind - 2)
			l.TimeZone = pick(t, zones...)
			t.renumber(&l)
		}
	}
	return l
}

// renumber changes a limit's numbers and leaves alone what would start another counter.
func (t *tape) renumber(l *headgate.Limit) {
	was := *l
	most := int64(headgate.MaxCost)
	if l.Algorithm == headgate.SlidingLog {
		most = headgate.MaxLogCount
	}
	l.Count = 1 + pick(t, 0, 1, 2, 6, 9, 99, 999, 1_000_000, 999_999_936, most-1, t.number(most-1), l.Count, 2*l.Count)%most
	switch l.Calendar {
	case headgate.NoCalendar:
		l.Window = pick(t, time.Second, time.Minute, time.Hour, 24*time.Hour, 30*24*time.Hour, 366*24*time.Hour, time.Millisecond,
			1001*time.Microsecond, 999_999*time.Microsecond, 7*time.Second, 1500*time.Millisecond, was.Window,
			time.Millisecond+time.Duration(t.number(40_000_000))*time.Microsecond)
	case headgate.Week:
		l.AnchorDay = t.below(8)
	case headgate.Month:
		l.AnchorDay = t.below(32)
	}
	if l.Algorithm == headgate.TokenBucket {
		l.Burst = pick(t, 0, 1, l.Count, min(2*l.Count, most), t.number(most))
	}
	if l.Validate() == nil {
		return
	}
	// Not every rate can be counted exactly, or refills within ten years.
	if l.Window, l.Burst = time.Minute, 0; was.Count > 0 {
		*l = was
	}
}

// history is a counter with a past, and the last answer.
type history struct {
	meter
	choose   tape
	receipts []headgate.Receipt
	last     headgate.Result
	log      func(format string, args ...any) // nil, or told every step

	steps, refused int // what was tried
}

// newHistory begins at some time before 2040, rather shortly before something odd happens to a clock.
func newHistory(choose tape, zones []*time.Location) *history {
	h := &history{choose: choose}
	h.limit = h.choose.limit(zones)
	h.now = pick(&h.choose, oddTimes...)
	if h.choose.below(2) == 0 {
		h.now = 1_000_000_000_000_000 + h.choose.number(1_200_000_000_000_000)
	}
	return h
}

// run takes steps until the tape is used up, and says which promise was broken.
func (h *history) run() error {
	if h.log != nil {
		h.log("%d: %+v", h.now, h.limit)
	}
	for h.steps = 0; len(h.choose) > 0 && h.steps < 40 && h.now < lastTime; h.steps++ {
		if err := h.step(); err != nil {
			return fmt.Errorf("step %d: %w", h.steps, err)
		}
	}
	return nil
}

func (h *history) step() error {
	h.now += h.span()
	if h.choose.below(12) == 0 {
		h.choose.renumber(&h.limit)
		if h.log != nil {
			h.log("%d: %+v", h.now, h.limit)
		}
	}
	c := h.charge()
	free := h.ask(headgate.Charge{Subject: c.Subject, MaxDelay: c.MaxDelay}, 0)
	before, logged := h.state, slices.Clone(h.state.Log)
	h.last = h.take(c)
	if h.log != nil {
		h.log("%d: cost %d at least %d max delay %v refund %+v: %+v, %+v", h.now, c.Cost, c.AtLeast, c.MaxDelay, c.Refund, h.last, h.state)
	}
	if !slices.Equal(before.Log, logged) {
		return errors.New("the state before was written to")
	}
	if h.last.Receipt.Units > 0 {
		h.receipts = append(h.receipts, h.last.Receipt)
	}
	return errors.Join(
		inBounds(h.state),
		h.checkGranted(c, before, free),
		h.checkRetryAfter(c, before),
		h.checkRemaining(c),
		h.checkResetAfter(c),
	)
}

// span is how long to wait before the next charge: mostly until about something happens.
func (h *history) span() int64 {
	c := &h.choose
	window := h.limit.Window
	if window == 0 {
		window = 25 * time.Hour
	}
	unit := window / time.Duration(h.limit.Count)
	wait := pick(c, 0, 0, 0, 0, 0, 0, time.Microsecond, unit, h.last.RetryAfter, h.last.RetryAfter-time.Microsecond, window/3, window,
		h.last.ResetAfter, h.last.ResetAfter-time.Microsecond, h.last.UnusedAfter, 2*window-time.Microsecond, time.Duration(c.number(100_000_000))*time.Microsecond)
	return max(0, wait.Microseconds())
}

func (h *history) charge() headgate.Charge {
	t := &h.choose
	c := headgate.Charge{Subject: headgate.Subject{8: 123, 45, 67, 89}}
	if h.limit.Algorithm == headgate.LeakyBucket {
		c.MaxDelay = pick(t, 0, h.limit.Window/time.Duration(h.limit.Count), h.limit.Window/2, h.limit.Window, 10*h.limit.Window,
			time.Duration(t.number(100_000_000))*time.Microsecond, time.Hour)
	}
	if n := len(h.receipts); n > 0 && t.below(5) == 0 {
		i := n - 1 - t.below(n)
		c.Refund = h.receipts[i]
		c.Cost = pick(t, c.Refund.Units, 1, c.Refund.Units/2, c.Refund.Units+1)
		h.receipts = slices.Delete(h.receipts, i, i+1)
		return c
	}
	most := capacity(h.limit)
	odd := pick(t, 0, 0, most+1, headgate.MaxCost, headgate.MaxCost+1, -1)
	c.Cost = pick(t, 1, 1, 2, 3, most, most, most/2, most/3+1, h.last.Remaining, h.last.Remaining+1, h.last.Remaining+1, 1+t.number(most-1), odd)
	c.AtLeast = pick(t, 0, 0, 0, 1, c.Cost/2, c.Cost+1)
	return c
}

// inBounds holds the state to what a double can count.
func inBounds(s headgate.State) error {
	const exact = 1 << 53
	for _, n := range []int64{s.Time, s.Used, s.Prev, s.Expires} {
		if n < 0 || n >= exact {
			return fmt.Errorf("state out of bounds: %+v", s)
		}
	}
	var used, last int64
	for _, e := range s.Log {
		if e.Units == 0 || e.Count != 1 || e.Time <= last {
			return fmt.Errorf("log out of order: %+v", s)
		}
		used += int64(e.Units)
		last = e.Time
	}
	if len(s.Log) > 0 && (used != s.Used || last != s.Time) {
		return fmt.Errorf("log and state differ: %+v", s)
	}
	return nil
}
