package storewrap

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// exhaust uses up a limit, and lets the node observe a denial.
func (l *lab) exhaust(c headgate.Charge) {
	l.Helper()
	all := c
	all.Cost, all.Force = c.Limit.Capacity(), true
	if _, err := take(l.inner, all); err != nil {
		l.Fatal(err)
	}
	if r := l.take(c)[0]; r.Allowed || r.Path != "" {
		l.Fatalf("%+v", r)
	}
}

// A denial is cached for half a second, with the result that the store would return.
func TestDenialIsCached(t *testing.T) {
	t.Parallel()
	for _, a := range []headgate.Algorithm{
		headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog,
	} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, 100)
			l.exhaust(c)
			began := time.Now()
			for !l.callsStore(c) {
				r := l.take(c)[0]
				want, err := take(l.inner, c)
				off := r.RetryAfter - want[0].RetryAfter
				if err != nil || r.Allowed || r.Path != headgate.PathCache || r.Remaining != 0 ||
					off.Abs() > time.Microsecond || (r.ResetAfter-want[0].ResetAfter).Abs() > time.Microsecond ||
					!r.Time.Equal(want[0].Time) {
					l.Fatalf("%v: %+v, want %+v: %v", a, r, want, err)
				}
				time.Sleep(time.Millisecond)
			}
			// The first denial is trusted less long if other nodes may hold leases, which they return.
			if elapsed := time.Since(began); elapsed > maxTrust || elapsed < time.Millisecond {
				l.Errorf("%v: it was trusted for %v", a, elapsed)
			}
			for range 10 { // until the trust has doubled to its maximum
				began = time.Now()
				for !l.callsStore(c) {
					time.Sleep(time.Millisecond)
				}
			}
			if elapsed := time.Since(began); elapsed != maxTrust {
				l.Errorf("%v: in the end it was trusted for %v", a, elapsed)
			}
		})
	}
}

// A node that was granted the last units of a token bucket knows when there are more. Units that another node releases from a
// hold do not count as used.
func TestLastUnitsAreKnown(t *testing.T) {
	t.Parallel()
	for cost := int64(1); cost <= 3; cost++ {
		for held := range int64(4) {
			inLab(t, Options{}, func(l *lab) {
				c := hour(headgate.TokenBucket, 10)
				c.Limit.Window, c.Cost, c.Strict = time.Second, cost, false
				hold, release := c, c
				if hold.Cost, hold.Hold = held, time.Minute; held > 0 {
					release.Cost, release.Release = 0, l.take(hold)[0].Receipt
				}
				for l.take(c)[0].Remaining >= cost {
					continue
				}
				if held > 0 {
					if _, err := take(l.inner, release); err != nil {
						l.Fatal(err)
					}
				} else if l.callsStore(c) {
					l.Errorf("cost %d: the store is called", cost)
				}
				r := l.take(c)[0]
				want, err := take(l.inner, c)
				if err != nil || held == 0 && (r.Allowed || r.RetryAfter != want[0].RetryAfter) || held >= cost && !r.Allowed {
					l.Errorf("cost %d, %d given back from a hold: %+v, and the store decides %+v: %v", cost, held, r, want, err)
				}
				time.Sleep(want[0].RetryAfter)
				if r := l.take(c)[0]; held == 0 && !r.Allowed {
					l.Errorf("cost %d: %+v after the wait", cost, r)
				}
			})
		}
	}
}

// A cached denial does not apply to other costs, limits and kinds of charges.
func TestCachedDenialMatchesCharge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change     func(c *headgate.Charge)
		callsStore bool
	}{
		"the same":      {func(*headgate.Charge) {}, false},
		"more":          {func(c *headgate.Charge) { c.Cost++ }, true},
		"less":          {func(c *headgate.Charge) { c.Cost-- }, true},
		"peek":          {func(c *headgate.Charge) { c.Cost = 0 }, true},
		"observing":     {func(c *headgate.Charge) { c.Observe = true }, false}, // it would not be counted
		"refund":        {func(c *headgate.Charge) { c.Refund = headgate.Receipt{Units: 1} }, true},
		"credit":        {func(c *headgate.Charge) { c.Credit = true }, true},
		"hold":          {func(c *headgate.Charge) { c.Hold = time.Second }, true},
		"release":       {func(c *headgate.Charge) { c.Release = headgate.Receipt{Units: 1} }, true},
		"forced":        {func(c *headgate.Charge) { c.Force = true }, true},
		"partial":       {func(c *headgate.Charge) { c.AtLeast = 1 }, true},
		"strict":        {func(c *headgate.Charge) { c.Strict = true }, true},
		"higher limit":  {func(c *headgate.Charge) { c.Limit.Count = 20 }, true},
		"lower limit":   {func(c *headgate.Charge) { c.Limit.Count = 9 }, true},
		"longer window": {func(c *headgate.Charge) { c.Limit.Window += time.Hour }, true},
		"counter":       {func(c *headgate.Charge) { c.Counter++ }, true},
		"subject":       {func(c *headgate.Charge) { c.Subject[0] += 2 }, true},
	} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(headgate.FixedWindow, 10)
			c.Cost = 3
			l.exhaust(c)
			test.change(&c)
			if callsStore := l.callsStore(c); callsStore != test.callsStore {
				l.Errorf("%s: store called: %v", name, callsStore)
			}
		})
	}
}

// A denial applies to its own cost: a larger cost waits longer, and a smaller one may fit.
func TestDenialIsForItsCost(t *testing.T) {
	t.Parallel()
	for _, a := range []headgate.Algorithm{
		headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog,
	} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, 10)
			costs := func(n int64) headgate.Charge { c := c; c.Cost = n; return c }
			l.take(costs(8))
			for _, cost := range []int64{5, 5, 6, 6, 3, 3, 9, 3, 11, 11} {
				want, err := take(l.inner, costs(cost))
				if got := l.take(costs(cost))[0]; err != nil || got.Allowed || got.RetryAfter != want[0].RetryAfter {
					l.Errorf("%v, %d units: %+v, want %+v: %v", a, cost, got, want[0], err)
				}
			}
			if l.callsStore(costs(11)) || !l.callsStore(costs(10)) {
				l.Errorf("%v: the store is called for the same cost, or not for another", a)
			}
		})
	}
}

// A denial covers the whole request: all its limits are shown, and the wait is the longest of them, for whichever of them the
// cache has a denial.
func TestDenialShowsAllLimits(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		short, long, roomy := yearly(headgate.TokenBucket, 5), yearly(headgate.TokenBucket, 5), yearly(headgate.FixedWindow, 100)
		short.Limit.Window, long.Limit.Window = time.Second, time.Hour
		long.Counter, roomy.Counter = long.Counter+1, roomy.Counter+2
		for range 5 {
			l.take(short, long, roomy)
		}
		for range 3_000 {
			got := l.take(short, long, roomy)
			want, err := take(l.inner, short, long, roomy)
			if err != nil || !slices.EqualFunc(got, want, sameVerdict) {
				l.Fatalf("%+v, want %+v: %v", got, want, err)
			}
			time.Sleep(time.Millisecond)
		}
		if calls := l.calls.Load() - 3_000 - 5; calls > 10 {
			l.Errorf("%d calls", calls)
		}
	})
}

// sameVerdict compares what clients see. A charge that fits may show fewer remaining units than the store would.
func sameVerdict(a, b headgate.Result) bool {
	return a.Allowed == b.Allowed && a.RetryAfter == b.RetryAfter && a.Granted == b.Granted &&
		(a.Remaining == b.Remaining || a.Allowed && a.Remaining <= b.Remaining) && (a.ResetAfter-b.ResetAfter).Abs() <= time.Microsecond
}

// Units that this node gives back are available at once.
func TestRefundEndsADenial(t *testing.T) {
	t.Parallel()
	for name, giveBack := range map[string]func(c, undo headgate.Charge) headgate.Charge{
		"refund": func(_, undo headgate.Charge) headgate.Charge { return undo },
		"credit": func(c, _ headgate.Charge) headgate.Charge { c.Credit = true; return c },
	} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(headgate.FixedWindow, 10)
			granted := l.take(c)[0]
			l.exhaust(c)
			undo, _ := c.Undo(&granted)
			if l.callsStore(c) || l.take(giveBack(c, undo))[0].Granted != 1 {
				l.Fatalf("%s: the cache did not deny it, or the units were not given back", name)
			}
			all := c
			all.Credit, all.Cost = true, 10
			if _, err := take(l.inner, all); err != nil {
				l.Fatal(err)
			}
			if r := l.take(c)[0]; !r.Allowed {
				l.Errorf("%s: then %+v", name, r)
			}
		})
	}
}

// No denial is cached after units are available again, except for contended counters, and clients get the time of that.
func TestDenialEndsInTime(t *testing.T) {
	t.Parallel()
	for _, limit := range []headgate.Limit{
		headgate.PerSecond(10), headgate.PerSecond(100), headgate.PerSecond(1_000), headgate.Per(10, 50*time.Second),
		{Algorithm: headgate.FixedWindow, Count: 10, Window: 70 * time.Millisecond},
		{Algorithm: headgate.FixedWindow, Count: 50, Window: 170 * time.Millisecond},
		{Algorithm: headgate.FixedWindow, Count: 10, Window: time.Second},
		{Algorithm: headgate.SlidingWindow, Count: 10, Window: time.Second},
		{Algorithm: headgate.SlidingLog, Count: 10, Window: 100 * time.Millisecond},
		{Algorithm: headgate.LeakyBucket, Count: 10, Window: time.Second},
	} {
		for _, pause := range []time.Duration{200 * time.Microsecond, 3 * time.Millisecond} {
			inLab(t, Options{}, func(l *lab) {
				c := headgate.Charge{Subject: headgate.SubjectOf("ann"), Counter: 1, Limit: limit, Cost: 1}
				peek := c
				peek.Cost = 0
				var fits time.Time // since when it would fit, after the last store call
				denials, cached := 0, 0
				for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(pause) {
					want, err := take(l.inner, peek)
					if err != nil {
						l.Fatal(err)
					}
					switch {
					case !want[0].Allowed:
						fits = time.Time{}
					case fits.IsZero():
						fits = time.Now()
					}
					r := l.take(c)[0]
					if r.Path != headgate.PathCache {
						fits = time.Time{}
					} else {
						cached++
					}
					if r.Allowed {
						continue
					}
					denials++
					if !fits.IsZero() && time.Since(fits) > maxContention {
						l.Fatalf("%v, every %v: units available for %v: %+v", limit, pause, time.Since(fits), r)
					}
					off := r.RetryAfter - want[0].RetryAfter
					if !want[0].Allowed && (off > maxContention || off < -time.Microsecond) {
						l.Fatalf("%v, every %v: again after %v, want %v", limit, pause, r.RetryAfter, want[0].RetryAfter)
					}
				}
				if pause < time.Millisecond && (denials < 1_000 || cached < denials/2) {
					l.Errorf("%v, every %v: %d of %d denials cached", limit, pause, cached, denials)
				}
			})
		}
	}
}

// A denial for another reason than a lack of units does not apply to other charges.
func TestDeniedForAnotherReason(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		c := yearly(headgate.FixedWindow, 10)
		c.Cost = 6
		if r := l.take(c, c); !r[0].Allowed || r[1].Allowed {
			l.Fatalf("%+v", r)
		}
		if r := l.take(c)[0]; !r.Allowed {
			l.Errorf("two at once were denied, and then one: %+v", r)
		}
	})
	inLab(t, Options{}, func(l *lab) {
		c := yearly(headgate.FixedWindow, 10*headgate.MaxHolds)
		hold := c
		hold.Hold = time.Hour
		const batch = 500
		for range headgate.MaxHolds / batch {
			l.take(slices.Repeat([]headgate.Charge{hold}, batch)...)
		}
		if r := l.take(hold)[0]; r.Allowed {
			l.Fatalf("%+v", r)
		}
		if r := l.take(c)[0]; !r.Allowed {
			l.Errorf("one hold too many was denied, and then a charge: %+v", r)
		}
	})
}

// Changing a limit drops what the cache knew.
func TestChangedLimit(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		c, more := yearly(headgate.FixedWindow, 10), yearly(headgate.FixedWindow, 20)
		l.exhaust(c)
		if r := l.take(more)[0]; !r.Allowed {
			l.Errorf("%+v", r)
		}
		if !l.callsStore(c) || l.callsStore(c) {
			l.Error("the cache used what it knew before the limit changed")
		}
	})
}
