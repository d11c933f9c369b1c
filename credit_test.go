package headgate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestCredit checks, after random histories of random limits, that a credit reduces usage by as many units as it returns, never
// reduces what is available later, and that the largest credit leaves a counter as if unused.
func TestCredit(t *testing.T) {
	t.Parallel()
	const histories, seed = 8_000, 1
	credits := map[headgate.Algorithm]int{}
	for i := range histories {
		g := func() generator { return newGenerator(seed, uint64(i)) }
		h := newHistory(g())
		if err := h.run(5); err != nil {
			t.Fatalf("seed %d, history %d: %v", seed, i, err)
		}
		if !h.choose.chance(3) { // so that windows roll and buckets leak in part
			h.now += int64(h.last.UnusedAfter/time.Microsecond) * int64(h.choose.IntN(256)) / 256
		}
		if err := h.checkWithin(); err != nil {
			explain(t, g())
			t.Fatalf("seed %d, history %d: %+v at %d: %v", seed, i, h.limit, h.now, err)
		}
		given, err := h.checkCredit()
		if err != nil {
			explain(t, g())
			t.Fatalf("seed %d, history %d: %+v at %d: %v", seed, i, h.limit, h.now, err)
		}
		if given > 0 {
			credits[h.limit.Algorithm]++
		}
	}
	for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
		if credits[a] < 200 {
			t.Errorf("only %d credits to a %s gave anything back: too few to be meaningful", credits[a], a)
		}
	}
}

// checkCredit compares the counter with itself after a credit, and after a reset.
func (h *history) checkCredit() (given int64, err error) {
	look := headgate.Charge{Subject: headgate.Subject{8: 123, 45, 67, 89}, MaxDelay: 10_000 * time.Hour}
	before := h.preview(look, 0)
	after := h.meter
	credit := look
	credit.Credit, credit.Cost = true, 1+h.choose.number(min(2*h.limit.Count, headgate.MaxCost-2))
	r := after.take(credit)
	given = r.Granted
	sunk := r.Remaining - before.Remaining
	used := max(0, capacity(h.limit)-before.Remaining)
	switch {
	case !r.Allowed || given < 0 || given > credit.Cost || r.Receipt != (headgate.Receipt{}):
		return given, fmt.Errorf("a credit of %d returns %+v", credit.Cost, r)
	case h.limit.Algorithm == headgate.LeakyBucket:
		then := after.preview(look, 0)
		unit := float64(h.limit.Window) / float64(h.limit.Count)
		fuzz := unit/millionth + 2_000 // levels are in millionths, times in microseconds
		sooner, want := float64(before.Delay-then.Delay), unit*float64(given)
		if before.Allowed && (sooner < want-fuzz || sooner > want+unit+fuzz) { // a fraction was given back as well
			return given, fmt.Errorf("%d units were given back, but the next waits %v instead of %v", given, then.Delay, before.Delay)
		}
	case before.Remaining == 0: // it may exceed its limit
		if sunk < 0 || sunk > given+1 {
			return given, fmt.Errorf("%d units were given back, but %d more remain", given, sunk)
		}
	case sunk != given && (h.limit.Algorithm != headgate.TokenBucket || sunk != given+1):
		return given, fmt.Errorf("%d units were given back, but %d more remain", given, sunk)
	case given != min(credit.Cost, used) && h.limit.Algorithm != headgate.TokenBucket:
		return given, fmt.Errorf("%d of %d units were given back, but %d were used", given, credit.Cost, used)
	}
	for k := range 9 {
		at := before.UnusedAfter / 8 * time.Duration(k)
		if with, without := after.preview(look, at), h.preview(look, at); with.Remaining < without.Remaining || with.UnusedAfter > without.UnusedAfter {
			return given, fmt.Errorf("%d units were given back, but %v later %+v is less than %+v", given, at, with, without)
		}
	}
	credit.Cost = headgate.MaxCost
	fresh := meter{limit: h.limit, now: h.now}
	after.take(credit)
	if got, want := after.preview(look, 0), fresh.preview(look, 0); got != want {
		return given, fmt.Errorf("reset, but then %+v, a new counter: %+v", got, want)
	}
	return given, inBounds(after.state)
}

// checkWithin compares a credit with one that is bounded to the present time or window, and with one that is bounded to another. A sliding
// window that was aligned differently before may count as the next window.
func (h *history) checkWithin() error {
	c := headgate.Charge{Subject: headgate.Subject{8: 123, 45, 67, 89}, Limit: h.limit, Cost: 1 + h.choose.number(99), Credit: true}
	free := h.meter
	want := free.take(c)
	terms, _ := c.Terms(time.UnixMicro(h.now))
	right := h.now
	switch h.limit.Algorithm {
	case headgate.FixedWindow, headgate.SlidingWindow:
		if right = terms.Start; !terms.Aligned {
			right = h.state.Time
			if want.Granted > 0 && h.now >= right+terms.Window { // the window that follows
				right += terms.Window
			}
		}
	case headgate.SlidingLog: // it ignores the bound
		right = 1
	}
	next := terms.Aligned && h.limit.Algorithm == headgate.SlidingWindow &&
		(h.state.Time > terms.Start || (h.state.Time-terms.Start)%terms.Window != 0)
	c.Within = right
	bounded := h.meter
	if got := bounded.take(c); got != want && !next {
		return fmt.Errorf("within %d: %+v, want %+v", right, got, want)
	}
	for _, other := range []int64{right - 1, right - terms.Window, right + 1} {
		if other == right || h.limit.Algorithm == headgate.SlidingLog || other > right && terms.P > 0 {
			continue
		}
		c.Within = other
		late := h.meter
		if got := late.take(c); got.Granted != 0 || !got.Allowed || !sameState(late.state, h.state) {
			return fmt.Errorf("within %d instead of %d: %+v", other, right, got)
		}
	}
	return nil
}

// TestAbsent checks that a charge on a counter that does not exist has the result of the same charge after a forced one, and leaves the
// same state.
func TestAbsent(t *testing.T) {
	t.Parallel()
	const cases, seed = 20_000, 1
	g := newGenerator(seed, 1)
	presumed := 0
	for i := range cases {
		limit, now := g.limit(), time.UnixMicro(1_700_000_000_000_000+g.number(400_000_000_000_000))
		c := headgate.Charge{Subject: headgate.Subject{8: 123, 45, 67, 89}, Limit: limit, MaxDelay: time.Hour, Cost: g.number(min(2*limit.Count, headgate.MaxCost))}
		c.AtLeast = oneOf[int64](g, 0, 0, 1)
		switch g.IntN(6) {
		case 0:
			c.Hold = time.Minute
		case 1:
			c.Force, c.Age = true, time.Duration(g.number(limit.Window.Microseconds()))*time.Microsecond
		case 2:
			c.Credit = true
		}
		absent := c
		absent.Absent = 1 + g.number(headgate.MaxCost-1)
		forced, state := c, headgate.State{}
		if terms, _ := absent.Terms(now); terms.Absent > 0 {
			presumed++
			forced.Cost, forced.Hold, forced.Credit, forced.Force, forced.Age = absent.Absent, 0, false, true, 0
			state, _ = limit.Take(state, forced, now)
		}
		after, want := limit.Take(state, c, now)
		got, r := limit.Take(headgate.State{}, absent, now)
		if sameState(after, state) {
			after = headgate.State{}
		}
		if r != want || !sameState(got, after) {
			t.Fatalf("seed %d, case %d: %+v at %d: %+v and %+v, want %+v and %+v", seed, i, absent, now.UnixMicro(), r, got, want, after)
		}
		refund := absent
		refund.Refund = headgate.Receipt{Units: 1, Mark: now.UnixMicro()}
		if _, r := limit.Take(headgate.State{}, refund, now); r.Granted != 0 {
			t.Fatalf("seed %d, case %d: %+v: %+v", seed, i, refund, r)
		}
	}
	if presumed < cases/4 {
		t.Errorf("only %d of %d counters counted as used", presumed, cases)
	}
}
