package headgate_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// history is a counter with random charges, and the last result.
type history struct {
	meter
	choose   generator
	receipts []headgate.Receipt
	last     headgate.Result
	log      func(format string, args ...any) // called for every step; may be nil

	steps, denied int // numbers of charges
}

// newHistory begins at a time before 2040, preferably shortly before an unusual clock change.
func newHistory(choose generator) *history {
	h := &history{choose: choose}
	h.limit = h.choose.limit()
	h.now = oneOf(h.choose, unusualTimes...)
	if h.choose.chance(2) {
		h.now = 1_000_000_000_000_000 + h.choose.number(1_200_000_000_000_000)
	}
	return h
}

// historySteps is the number of steps of a history, if time allows.
const historySteps = 14

// run makes the given number of steps and returns an error if a promise was broken.
func (h *history) run(steps int) error {
	if h.log != nil {
		h.log("%d: %+v", h.now, h.limit)
	}
	for h.steps = 0; h.steps < steps && h.now < lastTime; h.steps++ {
		if err := h.step(); err != nil {
			return fmt.Errorf("step %d: %w", h.steps, err)
		}
	}
	return nil
}

func (h *history) step() error {
	h.now += h.span()
	if h.choose.chance(12) {
		h.choose.renumber(&h.limit)
		if h.log != nil {
			h.log("%d: %+v", h.now, h.limit)
		}
	}
	c := h.charge()
	free := h.preview(headgate.Charge{Subject: c.Subject, MaxDelay: c.MaxDelay}, 0)
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

// span returns how long to wait before the next charge: mostly until about a change of the counter.
func (h *history) span() int64 {
	c := h.choose
	window := h.limit.Window
	if window == 0 {
		window = 25 * time.Hour
	}
	unit := window / time.Duration(h.limit.Count)
	wait := oneOf(c, 0, 0, 0, 0, 0, 0, time.Microsecond, unit, h.last.RetryAfter, h.last.RetryAfter-time.Microsecond, window/3, window,
		h.last.ResetAfter, h.last.ResetAfter-time.Microsecond, h.last.UnusedAfter, 2*window-time.Microsecond, time.Duration(c.number(100_000_000))*time.Microsecond)
	return max(0, wait.Microseconds())
}

func (h *history) charge() headgate.Charge {
	g := h.choose
	c := headgate.Charge{Subject: headgate.Subject{8: 123, 45, 67, 89}}
	if h.limit.Algorithm == headgate.LeakyBucket {
		c.MaxDelay = oneOf(g, 0, h.limit.Window/time.Duration(h.limit.Count), h.limit.Window/2, h.limit.Window, 10*h.limit.Window,
			time.Duration(g.number(100_000_000))*time.Microsecond, time.Hour)
	}
	if n := len(h.receipts); n > 0 && g.chance(5) {
		i := n - 1 - g.IntN(n)
		c.Refund = h.receipts[i]
		c.Cost = oneOf(g, c.Refund.Units, 1, c.Refund.Units/2, c.Refund.Units+1)
		h.receipts = slices.Delete(h.receipts, i, i+1)
		return c
	}
	limit := capacity(h.limit)
	unusual := oneOf(g, 0, 0, limit+1, headgate.MaxCost, headgate.MaxCost+1, -1)
	c.Cost = oneOf(g, 1, 1, 2, 3, limit, limit, limit/2, limit/3+1, h.last.Remaining, h.last.Remaining+1, h.last.Remaining+1, 1+g.number(limit-1), unusual)
	c.AtLeast = oneOf(g, 0, 0, 0, 1, c.Cost/2, c.Cost+1)
	return c
}

// inBounds checks that the numbers of a state are exact in a double.
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
