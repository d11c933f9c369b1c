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
