package headgate_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// unusualTimes are shortly before an unusual clock change.
var unusualTimes = []int64{
	time.Date(2025, 3, 29, 12, 0, 0, 0, time.UTC).UnixMicro(),  // Berlin: a day of 23 hours
	time.Date(2025, 10, 25, 12, 0, 0, 0, time.UTC).UnixMicro(), // Berlin: a day of 25 hours
	time.Date(2017, 10, 14, 12, 0, 0, 0, time.UTC).UnixMicro(), // São Paulo: no midnight
	time.Date(2020, 10, 29, 12, 0, 0, 0, time.UTC).UnixMicro(), // Amman: two midnights
	time.Date(2011, 12, 29, 12, 0, 0, 0, time.UTC).UnixMicro(), // Apia: a day skipped
	time.Date(2025, 4, 5, 13, 0, 0, 0, time.UTC).UnixMicro(),   // Lord Howe: half an hour twice
	time.Date(2025, 10, 4, 14, 0, 0, 0, time.UTC).UnixMicro(),  // Lord Howe: half an hour skipped
	time.Date(2024, 2, 28, 12, 0, 0, 0, time.UTC).UnixMicro(),  // a leap day
}

var unusualZones = sync.OnceValue(func() []*time.Location {
	var zones []*time.Location
	for _, name := range []string{"UTC", "Europe/Berlin", "Asia/Kolkata", "America/Sao_Paulo", "Asia/Amman", "Pacific/Apia", "Australia/Lord_Howe"} {
		loc, err := time.LoadLocation(name)
		if err != nil {
			panic(err)
		}
		zones = append(zones, loc)
	}
	return zones
})

// checkRetryAfter checks that RetryAfter is exact to the microsecond.
func (h *history) checkRetryAfter(c headgate.Charge, before headgate.State) error {
	r := h.last
	switch {
	case r.Allowed:
		if r.RetryAfter != 0 {
			return fmt.Errorf("allowed, but retry after %v", r.RetryAfter)
		}
		return nil
	case r.RetryAfter == headgate.Never:
		if _, fresh := h.limit.Take(headgate.State{}, c, time.UnixMicro(h.now)); fresh.Allowed {
			return errors.New("never, but a new counter grants it")
		}
		return nil
	case r.RetryAfter <= 0:
		return fmt.Errorf("denied, but retry after %v", r.RetryAfter)
	case !sameState(h.state, before):
		return fmt.Errorf("denied, but the state changed: %+v", before)
	}
	h.denied++
	if got := h.preview(c, r.RetryAfter); !got.Allowed {
		return fmt.Errorf("denied again after %v: %+v", r.RetryAfter, got)
	}
	if got := h.preview(c, r.RetryAfter-time.Microsecond); got.Allowed || got.RetryAfter != time.Microsecond {
		return fmt.Errorf("retry after %v, but a microsecond earlier: %+v", r.RetryAfter, got)
	}
	return nil
}

// checkGranted compares what was granted with what was available just before.
func (h *history) checkGranted(c headgate.Charge, before headgate.State, free headgate.Result) error {
	r := h.last
	if want := fits(h.limit, c, free); r.Allowed != want {
		return fmt.Errorf("allowed %v, want %v with %d free", r.Allowed, want, free.Remaining)
	}
	switch {
	case c.Refund.Units > 0:
		if !r.Allowed || r.Granted < 0 || r.Granted > max(0, min(c.Cost, c.Refund.Units)) || r.Remaining < free.Remaining {
			return fmt.Errorf("%d units given back, %d free before", r.Granted, free.Remaining)
		}
	case !r.Allowed || c.Cost == 0:
		if r.Granted != 0 || r.Receipt != (headgate.Receipt{}) || !sameState(h.state, before) {
			return fmt.Errorf("neither charged nor unchanged: %+v", before)
		}
	case h.limit.Algorithm == headgate.LeakyBucket:
		if want := min(c.Cost, h.limit.Count); r.Granted != want || r.Delay > c.MaxDelay {
			return fmt.Errorf("granted %d with a delay of %v, want %d with at most %v", r.Granted, r.Delay, want, c.MaxDelay)
		}
	case r.Granted != min(c.Cost, free.Remaining) || r.Remaining != free.Remaining-r.Granted:
		return fmt.Errorf("granted %d of %d free, and %d remain", r.Granted, free.Remaining, r.Remaining)
	}
	if r.Receipt.Units != r.Granted && c.Refund.Units == 0 {
		return fmt.Errorf("granted %d with a receipt for %d", r.Granted, r.Receipt.Units)
	}
	return nil
}

// fits reports whether a charge must be allowed, by its fields and what is available.
func fits(l headgate.Limit, c headgate.Charge, free headgate.Result) bool {
	least := max(1, c.Cost)
	if c.AtLeast > 0 && c.AtLeast < c.Cost {
		least = c.AtLeast
	}
	switch {
	case c.Refund.Units > 0:
		return true
	case c.Cost < 0 || c.Cost > headgate.MaxCost || least > capacity(l):
		return false
	case l.Algorithm == headgate.LeakyBucket:
		return free.Remaining > 0
	}
	return least <= free.Remaining
}

// checkRemaining takes the remaining units, and one more.
func (h *history) checkRemaining(c headgate.Charge) error {
	m, remaining := h.meter, h.last.Remaining
	single := headgate.Charge{Subject: c.Subject, Cost: 1, MaxDelay: c.MaxDelay}
	if h.limit.Algorithm == headgate.LeakyBucket {
		// It allows any charge if it allows a single unit, so that most units can be taken in large charges.
		if remaining/h.limit.Count > 40 {
			return nil
		}
		for left := remaining - 1; left > 0; left -= h.limit.Count {
			if !m.take(headgate.Charge{Subject: c.Subject, Cost: min(left, h.limit.Count), MaxDelay: c.MaxDelay}).Allowed {
				return fmt.Errorf("%d remain, but not even %d", remaining, remaining-left)
			}
		}
		if remaining > 0 && !m.take(single).Allowed {
			return fmt.Errorf("%d remain, but not the last of them", remaining)
		}
		if m.take(single).Allowed {
			return fmt.Errorf("%d remain, but there is one more", remaining)
		}
		return nil
	}
	all := single
	if all.Cost = remaining; remaining > 0 && !m.preview(all, 0).Allowed {
		return fmt.Errorf("%d remain, but do not fit", remaining)
	}
	if all.Cost++; m.preview(all, 0).Allowed {
		return fmt.Errorf("%d remain, but more fit", remaining)
	}
	return nil
}

// checkResetAfter compares the counter with a new one after UnusedAfter and a microsecond earlier. The ResetAfter of a charged sliding
// window is one window earlier.
func (h *history) checkResetAfter(c headgate.Charge) error {
	look := headgate.Charge{Subject: c.Subject, MaxDelay: c.MaxDelay}
	reset, ends := h.last.UnusedAfter, h.last.ResetAfter
	switch {
	case ends == reset:
	case h.limit.Algorithm != headgate.SlidingWindow || ends > reset:
		return fmt.Errorf("reset after %v, unused after %v", ends, reset)
	case ends > 0 && h.preview(look, ends-time.Microsecond).ResetAfter != time.Microsecond:
		return fmt.Errorf("reset after %v, but a microsecond earlier: %+v", ends, h.preview(look, ends-time.Microsecond))
	}
	got := h.preview(look, reset)
	fresh := meter{limit: h.limit, now: h.now}
	if want := fresh.preview(look, reset); got != want {
		return fmt.Errorf("reset after %v, but then: %+v, a new counter: %+v", reset, got, want)
	}
	if reset == 0 {
		return nil
	}
	got = h.preview(look, reset-time.Microsecond)
	if got.Allowed && got.Delay == 0 && got.Remaining == fresh.preview(look, reset-time.Microsecond).Remaining || got.UnusedAfter != time.Microsecond {
		return fmt.Errorf("reset after %v, but a microsecond earlier: %+v", reset, got)
	}
	return nil
}

func sameState(a, b headgate.State) bool {
	return a.Time == b.Time && a.Used == b.Used && a.Prev == b.Prev && a.Expires == b.Expires && slices.Equal(a.Log, b.Log) &&
		a.LastHold == b.LastHold && a.Credited == b.Credited
}

// TestResultsAreExact checks RetryAfter, Remaining, ResetAfter and UnusedAfter to the microsecond and to the unit after random
// histories.
func TestResultsAreExact(t *testing.T) {
	t.Parallel()
	const histories = 6_000
	for shard := range uint64(4) {
		t.Run(fmt.Sprintf("shard %d", shard), func(t *testing.T) {
			t.Parallel()
			charges, denied := 0, map[headgate.Algorithm]int{}
			for i := range histories {
				g := func() generator { return newGenerator(shard, uint64(i)) }
				h := newHistory(g())
				if err := h.run(historySteps); err != nil {
					explain(t, g())
					t.Fatalf("shard %d, history %d: %v", shard, i, err)
				}
				charges += h.steps
				denied[h.limit.Algorithm] += h.denied
			}
			for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
				if denied[a] < 2_000 || charges < 75_000 {
					t.Errorf("of %d charges %s denied %d: too few to be meaningful", charges, a, denied[a])
				}
			}
		})
	}
}

func FuzzRetryAfter(f *testing.F) {
	addChoices(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		if err := newHistory(fuzzed(choices)).run(historySteps); err != nil {
			explain(t, fuzzed(choices))
			t.Fatal(err)
		}
	})
}

// explain runs a history again and logs every step.
func explain(t *testing.T, choose generator) {
	t.Helper()
	h := newHistory(choose)
	h.log = t.Logf
	_ = h.run(historySteps) // fails as before
}
