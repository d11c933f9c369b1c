package storewrap

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// exhaust uses up a limit, and lets the node see a denial.
func (l *lab) exhaust(c headgate.Charge) {
	l.Helper()
	all := c
	all.Cost, all.Force = c.Limit.Capacity(), true
	if _, err := take(l.inner, all); err != nil {
		l.Fatal(err)
	}
	if r := l.ask(c)[0]; r.Allowed || r.Path != "" {
		l.Fatalf("%+v", r)
	}
}

// A denial is cached for half a second, and says what the store would.
func TestDenialIsCached(t *testing.T) {
	t.Parallel()
	for _, a := range []headgate.Algorithm{
		headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog,
	} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, 100)
			l.exhaust(c)
			asked := time.Now()
			for !l.asks(c) {
				r := l.ask(c)[0]
				want, err := take(l.inner, c)
				off := r.RetryAfter - want[0].RetryAfter
				if err != nil || r.Allowed || r.Path != headgate.PathCache || r.Remaining != 0 ||
					off.Abs() > time.Microsecond || (r.ResetAfter-want[0].ResetAfter).Abs() > time.Microsecond ||
					!r.Time.Equal(want[0].Time) {
					l.Fatalf("%v: %+v, and not %+v: %v", a, r, want, err)
				}
				time.Sleep(time.Millisecond)
			}
			// The first is shorter where others may have units in advance, which they give back.
			if elapsed := time.Since(asked); elapsed > maxTrust || elapsed < time.Millisecond {
				l.Errorf("%v: it was trusted for %v", a, elapsed)
			}
			for range 10 { // until it has doubled often enough
				asked = time.Now()
				for !l.asks(c) {
					time.Sleep(time.Millisecond)
				}
			}
			if elapsed := time.Since(asked); elapsed != maxTrust {
				l.Errorf("%v: in the end it was trusted for %v", a, elapsed)
			}
		})
	}
}

// A node that was granted the last units of a token bucket knows by itself when there are more. What another node gives back from a
// hold is not mistaken for used.
func TestLastUnitsAreKnown(t *testing.T) {
	t.Parallel()
	for cost := int64(1); cost <= 3; cost++ {
		for held := range int64(4) {
			inLab(t, Options{}, func(l *lab) {
				c := hour(headgate.TokenBucket, 10)
				c.Limit.Window, c.Cost, c.Strict = time.Second, cost, false
				hold, release := c, c
				if hold.Cost, hold.Hold = held, time.Minute; held > 0 {
					release.Cost, release.Release = 0, l.ask(hold)[0].Receipt
				}
				for l.ask(c)[0].Remaining >= cost {
					continue
				}
				if held > 0 {
					if _, err := take(l.inner, release); err != nil {
						l.Fatal(err)
					}
				} else if l.asks(c) {
					l.Errorf("cost %d: the store is asked", cost)
				}
				r := l.ask(c)[0]
				want, err := take(l.inner, c)
				if err != nil || held == 0 && (r.Allowed || r.RetryAfter != want[0].RetryAfter) || held >= cost && !r.Allowed {
					l.Errorf("cost %d, %d given back from a hold: %+v, and the store says %+v: %v", cost, held, r, want, err)
				}
				time.Sleep(want[0].RetryAfter)
				if r := l.ask(c)[0]; held == 0 && !r.Allowed {
					l.Errorf("cost %d: %+v after the wait", cost, r)
				}
			})
		}
	}
}

// A denial says nothing of other costs, limits and kinds of charges.
func TestWhatADenialIsNotAbout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(c *headgate.Charge)
		asks   bool
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
			if asks := l.asks(c); asks != test.asks {
				l.Errorf("%s: the store is asked: %v", name, asks)
			}
		})
	}
}

// A denial is about its own cost: what costs more waits longer, and what costs less may fit.
func TestDenialIsForItsCost(t *testing.T) {
	t.Parallel()
	for _, a := range []headgate.Algorithm{
		headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog,
	} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, 10)
			costs := func(n int64) headgate.Charge { c := c; c.Cost = n; return c }
			l.ask(costs(8))
			for _, cost := range []int64{5, 5, 6, 6, 3, 3, 9, 3, 11, 11} {
				want, err := take(l.inner, costs(cost))
				if got := l.ask(costs(cost))[0]; err != nil || got.Allowed || got.RetryAfter != want[0].RetryAfter {
					l.Errorf("%v, %d units: %+v, and not %+v: %v", a, cost, got, want[0], err)
				}
			}
			if l.asks(costs(11)) || !l.asks(costs(10)) {
				l.Errorf("%v: the same is asked again, or another cost is not", a)
			}
		})
	}
}

// A denial is about the whole request: all its limits are shown, and the wait is the longest of them, whichever of them the cache
// knows for how long.
func TestDenialIsOfAllLimits(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		short, long, roomy := yearly(headgate.TokenBucket, 5), yearly(headgate.TokenBucket, 5), yearly(headgate.FixedWindow, 100)
		short.Limit.Window, long.Limit.Window = time.Second, time.Hour
		long.Counter, roomy.Counter = long.Counter+1, roomy.Counter+2
		for range 5 {
			l.ask(short, long, roomy)
		}
		for range 3_000 {
			got := l.ask(short, long, roomy)
			want, err := take(l.inner, short, long, roomy)
			if err != nil || !slices.EqualFunc(got, want, sameVerdict) {
				l.Fatalf("%+v, and not %+v: %v", got, want, err)
			}
			time.Sleep(time.Millisecond)
		}
		if calls := l.calls.Load() - 3_000 - 5; calls > 10 {
			l.Errorf("%d calls", calls)
		}
	})
}

// sameVerdict compares what clients are told. What would fit may be told to fit with what fits at least.
func sameVerdict(a, b headgate.Result) bool {
	return a.Allowed == b.Allowed && a.RetryAfter == b.RetryAfter && a.Granted == b.Granted &&
		(a.Remaining == b.Remaining || a.Allowed && a.Remaining <= b.Remaining) && (a.ResetAfter-b.ResetAfter).Abs() <= time.Microsecond
}

// What this node gives back is available at once.
func TestRefundEndsADenial(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(c, undo headgate.Charge) headgate.Charge{
		"refund": func(_, undo headgate.Charge) headgate.Charge { return undo },
		"credit": func(c, _ headgate.Charge) headgate.Charge { c.Credit = true; return c },
	} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(headgate.FixedWindow, 10)
			granted := l.ask(c)[0]
			l.exhaust(c)
			undo, _ := c.Undo(&granted)
			if l.asks(c) || l.ask(back(c, undo))[0].Granted != 1 {
				l.Fatalf("%s: it was not denied here, or not given back", name)
			}
			all := c
			all.Credit, all.Cost = true, 10
			if _, err := take(l.inner, all); err != nil {
				l.Fatal(err)
			}
			if r := l.ask(c)[0]; !r.Allowed {
				l.Errorf("%s: then %+v", name, r)
			}
		})
	}
}

// No denial is cached beyond the time at which units are available again, but for contended counters, and clients are told when
// that is.
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
				var fits time.Time // since when it would, after the store was last asked
				denials, cached := 0, 0
				for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(pause) {
					there, err := take(l.inner, peek)
					if err != nil {
						l.Fatal(err)
					}
					switch {
					case !there[0].Allowed:
						fits = time.Time{}
					case fits.IsZero():
						fits = time.Now()
					}
					r := l.ask(c)[0]
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
						l.Fatalf("%v, every %v: there are units since %v: %+v", limit, pause, time.Since(fits), r)
					}
					off := r.RetryAfter - there[0].RetryAfter
					if !there[0].Allowed && (off > maxContention || off < -time.Microsecond) {
						l.Fatalf("%v, every %v: again after %v, and not %v", limit, pause, r.RetryAfter, there[0].RetryAfter)
					}
				}
				if pause < time.Millisecond && (denials < 1_000 || cached < denials/2) {
					l.Errorf("%v, every %v: %d of %d denied here", limit, pause, cached, denials)
				}
			})
		}
	}
}

// A denial that is not for want of units says nothing about other charges.
func TestDeniedForAnotherReason(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		c := yearly(headgate.FixedWindow, 10)
		c.Cost = 6
		if r := l.ask(c, c); !r[0].Allowed || r[1].Allowed {
			l.Fatalf("%+v", r)
		}
		if r := l.ask(c)[0]; !r.Allowed {
			l.Errorf("two at once were denied, and then one: %+v", r)
		}
	})
	inLab(t, Options{}, func(l *lab) {
		c := yearly(headgate.FixedWindow, 10*headgate.MaxHolds)
		hold := c
		hold.Hold = time.Hour
		const batch = 500
		for range headgate.MaxHolds / batch {
			l.ask(slices.Repeat([]headgate.Charge{hold}, batch)...)
		}
		if r := l.ask(hold)[0]; r.Allowed {
			l.Fatalf("%+v", r)
		}
		if r := l.ask(c)[0]; !r.Allowed {
			l.Errorf("one hold too many was denied, and then a charge: %+v", r)
		}
	})
}

// What was known of other numbers of a limit is dropped.
func TestChangedLimit(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		c, more := yearly(headgate.FixedWindow, 10), yearly(headgate.FixedWindow, 20)
		l.exhaust(c)
		if r := l.ask(more)[0]; !r.Allowed {
			l.Errorf("%+v", r)
		}
		if !l.asks(c) || l.asks(c) {
			l.Error("after another limit the old one is not as new")
		}
	})
}
