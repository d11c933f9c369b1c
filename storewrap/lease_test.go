package storewrap

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// Leased units are spent without a call, and every result includes them in Remaining.
func TestLeaseIsSpentLocally(t *testing.T) {
	t.Parallel()
	const limit, requests = 1_000_000, 5_000
	for _, a := range leased {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, limit)
			for i := range int64(requests) {
				if r := l.take(c)[0]; r.Granted != 1 || r.Remaining != limit-i-1 {
					l.Fatalf("%v: %d: %+v", a, i, r)
				}
				time.Sleep(1007 * time.Microsecond) // so that no request is sent at the same time as a lease
			}
			if calls := l.calls.Load(); calls > requests/10 {
				l.Errorf("%v: %d calls for %d", a, calls, requests)
			}
			if !l.callsStore(c, c) {
				l.Errorf("%v: the cache decided two charges on one counter", a)
			}
		})
	}
}

// A node never denies units that it holds or is acquiring: a client can use all units that Remaining shows.
func TestNodeDoesNotDenyOwnUnits(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		for earlier := range 60 {
			inLab(t, Options{}, func(l *lab) {
				c := yearly(a, 1_000)
				var left int64
				for i := range 20 + 5*earlier {
					left = l.take(c)[0].Remaining
					if i < 19+5*earlier {
						time.Sleep(time.Duration(5+earlier%7) * time.Millisecond)
					}
				}
				expensive := c
				expensive.Cost = left + 1
				if r := l.take(expensive)[0]; r.Allowed || r.Remaining != left {
					l.Errorf("%v after %d: %d are left: %+v", a, earlier, left, r)
				}
				expensive.Cost = left
				if r := l.take(expensive)[0]; !r.Allowed || r.Remaining != 0 {
					l.Errorf("%v after %d: %d are left: %+v", a, earlier, left, r)
				}
			})
		}
	}
}

func TestNeverLeased(t *testing.T) {
	t.Parallel()
	const nodes = 2
	for name, test := range map[string]struct {
		limit  headgate.Limit
		strict bool
		want   bool
	}{
		"enough":       {limit: headgate.Per(40*nodes, 100*time.Millisecond), want: true},
		"small":        {limit: headgate.Per(40*nodes-1, 100*time.Millisecond)},
		"strict":       {limit: headgate.PerSecond(100_000), strict: true},
		"leaky bucket": {limit: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 100_000, Window: time.Second}},
		"sliding log":  {limit: headgate.Limit{Algorithm: headgate.SlidingLog, Count: 1_000, Window: time.Second}},
	} {
		inLab(t, Options{Nodes: nodes}, func(l *lab) {
			c := headgate.Charge{Subject: headgate.SubjectOf("ann"), Counter: 1, Limit: test.limit, Cost: 1}
			c.Strict, c.MaxDelay = test.strict, time.Hour
			const requests = 1_000
			for range requests {
				if r := l.take(c)[0]; !r.Allowed {
					l.Fatalf("%s: %+v", name, r)
				}
				time.Sleep(2 * time.Millisecond)
			}
			if leased := l.calls.Load() < requests; leased != test.want {
				l.Errorf("%s: %d calls for %d", name, l.calls.Load(), requests)
			}
		})
	}
}

// A request that another limit denies does not spend leased units: if the store denies it, if the cache does, and if the
// lease has ended in the meantime.
func TestDeniedRequestDoesNotSpendLease(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inLab(t, Options{}, func(l *lab) {
			c, other := yearly(a, 100_000), yearly(headgate.FixedWindow, 1)
			other.Subject = headgate.SubjectOf("bob")
			if _, err := take(l.inner, other); err != nil { // another client has used it
				l.Fatal(err)
			}
			admitted := l.lease(c)
			before, held := l.take(c)[0], l.held(c)
			admitted++
			for i, callsStore := range []bool{true, false} {
				if l.callsStore(c, other) != callsStore || l.held(c) != held {
					l.Errorf("%v, %d: %d held of %d", a, i, l.held(c), held)
				}
				if l.callsStore(other, c) || l.held(c) != held {
					l.Errorf("%v, %d, the other way round: %d held of %d", a, i, l.held(c), held)
				}
			}
			time.Sleep(maxTrust) // so that the store is called
			r := l.take(c, other)
			if !r[0].Allowed || r[0].Granted != 0 || r[0].Receipt.Units != 0 || r[0].Remaining != before.Remaining ||
				r[1].Allowed {
				l.Errorf("%v: %+v, after %+v", a, r, before)
			}
			time.Sleep(maxTrust)
			l.fail(func(charges []headgate.Charge) error {
				if charges[0].Counter == other.Counter && charges[0].Subject == other.Subject {
					time.Sleep(600 * time.Millisecond)
				}
				return nil
			})
			for end := time.Now().Add(maxTerm); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if r := l.take(c, other); r[0].Granted != 0 || r[1].Allowed {
					l.Fatalf("%v: %+v", a, r)
				}
			}
			l.node.Close()
			l.settles(c, admitted)
		})
	}
}

// A lease is spent only in the window that it was charged to, even if the counter also has holds.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	for _, limit := range []headgate.Limit{
		{Algorithm: headgate.FixedWindow, Count: 10_000, Window: time.Second},
		{Algorithm: headgate.FixedWindow, Count: 10_000, Window: time.Second, Align: headgate.OnClock},
		{Algorithm: headgate.FixedWindow, Count: 10_000, Window: time.Second, Align: headgate.OnClockSpread},
		{Algorithm: headgate.SlidingWindow, Count: 10_000, Window: time.Second},
		headgate.Quota(1_000_000, headgate.Minute, time.FixedZone("", 1_800)),
	} {
		for _, hold := range []time.Duration{0, time.Hour} {
			inLab(t, Options{}, func(l *lab) {
				c := headgate.Charge{Subject: headgate.SubjectOf("ann"), Counter: 1, Limit: limit, Cost: 1}
				if hold > 0 {
					held := c
					held.Hold = hold
					l.take(held)
				}
				pause, spent := time.Millisecond, 0
				if limit.Calendar != headgate.NoCalendar {
					pause *= 20
				}
				for range 7_000 {
					time.Sleep(pause + time.Microsecond/3)
					r := l.take(c)[0]
					if r.Path != headgate.PathLease {
						continue
					}
					spent++
					terms, _ := c.Terms(time.Now())
					start := time.Now().UnixMicro() - limit.Window.Microseconds() + 1
					if terms.Aligned {
						start = terms.Start
					}
					if r.Receipt.Mark < start {
						l.Fatalf("%v, hold %v: %+v is of a previous window", limit, hold, r)
					}
				}
				if spent < 1_000 {
					l.Errorf("%v, hold %v: %d units were leased", limit, hold, spent)
				}
			})
		}
	}
}

// Unspent units are returned when the lease ends, when the entry is evicted, when the limit changes and when the store is
// closed.
func TestUnspentUnitsAreReturned(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(l *lab, c *headgate.Charge){
		"end": func(*lab, *headgate.Charge) { time.Sleep(maxTerm + 100*time.Millisecond) },
		"evicted": func(l *lab, c *headgate.Charge) {
			for i, others := 0, 0; others < ways; i++ {
				other := *c
				if other.Subject = headgate.SubjectOf(strconv.Itoa(i)); sameSet(l.node, &other, c) {
					l.take(other)
					others++
				}
			}
			time.Sleep(100 * time.Millisecond)
		},
		"changed": func(l *lab, c *headgate.Charge) {
			c.Limit.Count, c.Limit.Burst = c.Limit.Count+1, 0
			peek := *c
			peek.Cost = 0
			l.take(peek)
			time.Sleep(100 * time.Millisecond)
		},
		"stop": func(l *lab, _ *headgate.Charge) { l.node.Close() },
	} {
		for _, a := range leased {
			t.Run(name+"/"+a.String(), func(t *testing.T) {
				inLab(t, Options{}, func(l *lab) {
					c := yearly(a, 1_000)
					admitted := l.lease(c)
					ends(l, &c)
					synctest.Wait()
					l.settles(c, admitted)
				})
			})
		}
	}
}

func sameSet(s *Store, a, b *headgate.Charge) bool {
	first, mu := s.cache.lockSet(a.Subject, a.Counter)
	mu.Unlock()
	second, mu := s.cache.lockSet(b.Subject, b.Counter)
	mu.Unlock()
	return first == second
}

// Units that are being returned to the store are not denied.
func TestUnitsBeingReturnedAreNotDenied(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, 1_000)
			l.lease(c)
			left := l.take(c)[0].Remaining
			l.node.cache.recall(c.Subject, c.Counter)
			if l.held(c) != 0 {
				l.Fatal("a lease was not recalled")
			}
			c.Cost = left
			if r := l.take(c)[0]; !r.Allowed || r.Remaining != 0 {
				l.Errorf("%v: %d were left: %+v", a, left, r)
			}
		})
	}
}

// Units that are returned while the store's denial is on its way are not denied.
func TestUnitsReturnedBeforeDenialArrives(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, 1_000)
			l.lease(c)
			left := l.take(c)[0].Remaining
			c.Cost = left
			l.inner.Store = slowResult{l.inner.Store, left, 2 * batchDelay}
			l.node.cache.recall(c.Subject, c.Counter)
			if r := l.take(c)[0]; !r.Allowed || r.Remaining != 0 {
				l.Errorf("%v: %d were left: %+v", a, left, r)
			}
		})
	}
}

// slowResult is a store whose result for charges of one cost is delayed.
type slowResult struct {
	headgate.Store
	cost  int64
	takes time.Duration
}

func (s slowResult) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	err := s.Store.Take(ctx, charges, results)
	if charges[len(charges)-1].Cost == s.cost {
		time.Sleep(s.takes)
	}
	return err
}

// Units that another request returns are not denied.
func TestUnitsReturnedByAnotherRequest(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, 1_000)
			l.lease(c)
			left := l.take(c)[0].Remaining
			l.fail(func(charges []headgate.Charge) error {
				if charges[0].Refund.Units > 0 && charges[len(charges)-1].Cost == 0 {
					time.Sleep(2 * batchDelay)
				}
				return nil
			})
			peek := c
			peek.Cost = 0
			var carrier sync.WaitGroup
			defer carrier.Wait()
			carrier.Go(func() { _, _ = take(l.node, peek) }) // only its returns matter
			synctest.Wait()
			if l.held(c) != 0 {
				l.Fatal("the peek returned no lease")
			}
			c.Cost = left
			if r := l.take(c)[0]; !r.Allowed || r.Remaining != 0 {
				l.Errorf("%v: %d were left: %+v", a, left, r)
			}
		})
	}
}

// A lease that is not answered counts as charged, and is not spent. One that is answered late is used or returned.
func TestLateLease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		late time.Duration
		lost bool
	}{"lost": {0, true}, "late": {150 * time.Millisecond, false}, "too late": {900 * time.Millisecond, false}} {
		for _, a := range leased {
			inLab(t, Options{}, func(l *lab) {
				c := yearly(a, 100_000)
				var lost atomic.Int64
				l.fail(func(charges []headgate.Charge) error {
					if charges[0].AtLeast == 0 || lost.Load() > 0 {
						return nil
					}
					lost.Store(charges[0].Cost)
					time.Sleep(test.late)
					if test.lost {
						return errLost
					}
					return nil
				})
				var admitted int64
				for range 3_000 {
					r := l.take(c)[0]
					if r.Path == headgate.PathLocal {
						l.Fatalf("%s, %v: %+v", name, a, r)
					}
					admitted += r.Granted
					time.Sleep(time.Millisecond)
				}
				if !test.lost {
					lost.Store(0)
				}
				if stats := l.node.Stats(); stats.Unanswered != 0 || stats.LeaseLost != lost.Load() || stats.Leased == 0 {
					l.Errorf("%s, %v: %+v, %d lost", name, a, stats, lost.Load())
				}
				l.node.Close()
				l.settles(c, admitted+lost.Load())
			})
		}
	}
}

// A lease is spent while the store is unavailable, until it ends. Then the node's fallback share decides.
func TestLeaseWhileStoreUnavailable(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"spent": time.Microsecond, "over": 3 * time.Second} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(headgate.FixedWindow, 100_000)
			l.lease(c)
			l.fail(func([]headgate.Charge) error { return errGone })
			held, began := l.held(c), time.Now()
			var spent int64
			for l.take(c)[0].Path == headgate.PathLease {
				spent++
				time.Sleep(pause)
			}
			if over := spent < held; over != (name == "over") || spent == 0 || time.Since(began) > maxTerm+pause {
				l.Errorf("%s: %d spent of %d, for %v", name, spent, held, time.Since(began))
			}
			if r := l.take(c)[0]; !r.Allowed || r.Path != headgate.PathLocal {
				l.Errorf("%s: then %+v", name, r)
			}
		})
	}
}

// A result's Remaining sums the store's remaining units and those that the node holds, and is at most the capacity.
func TestRemainingWithALease(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		const limit = 1_000
		c := headgate.Charge{Subject: headgate.SubjectOf("ann"), Counter: 1, Limit: headgate.PerSecond(limit), Cost: 1}
		peek := c
		peek.Cost = 0
		for range 100 {
			l.lease(c)
			r := l.take(c)[0]
			if got := l.take(peek)[0].Remaining; r.Path != headgate.PathLease || r.Remaining > limit || got < r.Remaining || got > limit {
				l.Fatalf("%+v, and %d by a peek", r, got)
			}
			if l.held(c) != 0 {
				l.Fatal("a peek did not return the lease")
			}
		}
	})
}

// A lease whose reply arrives after that of a later charge leaves Remaining as the charge reported it.
func TestRemainingAfterOvertakenLease(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, 10_000)
			delay := func(charges []headgate.Charge) {
				if charges[0].AtLeast > 0 {
					time.Sleep(5 * time.Millisecond)
				}
			}
			l.inner.delay.Store(&delay)
			var admitted int64
			for range 3_000 {
				r := l.take(c)[0]
				if admitted += r.Granted; r.Remaining > c.Limit.Count-admitted {
					l.Fatalf("%v: %d remaining (path %q) of %d after %d were admitted", a, r.Remaining, r.Path, c.Limit.Count, admitted)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// A peek, which the store decides, includes the units that the node holds.
func TestPeekShowsOwnUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, requests = 10_000, 300
		node := wrap(t, memstore.New(memstore.Options{}), Options{})
		limiter, err := headgate.New(node, headgate.Rule{ID: "r", By: []string{"user"}, Limit: hourly(limit)})
		if err != nil {
			t.Fatal(err)
		}
		for range requests {
			if d, err := limiter.Check(t.Context(), who("ann")); err != nil || !d.Allowed {
				t.Fatalf("%+v: %v", d, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if node.Stats().Leases == 0 {
			t.Error("no lease was taken")
		}
		if d, err := limiter.Peek(t.Context(), who("ann")); err != nil || d.Limits[0].Remaining != limit-requests {
			t.Errorf("%+v: %v", d, err)
		}
	})
}

// A leased unit is refunded like any other.
func TestRefundOfLeasedUnits(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(a, 10_000)
			admitted := l.lease(c)
			for range 3 {
				r := l.take(c)[0]
				back, ok := c.Undo(&r)
				if r.Path != headgate.PathLease || !ok || l.take(back)[0].Granted != 1 {
					l.Errorf("%v: %+v was not given back", a, r)
				}
			}
			l.node.Close()
			l.settles(c, admitted)
		})
	}
}

// Callers may share their charges: the store does not modify them.
func TestChargesAreNotModified(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		a, b := yearly(headgate.TokenBucket, 1_000_000), yearly(headgate.FixedWindow, 2_000_000)
		charges := []headgate.Charge{a, b}
		var callers sync.WaitGroup
		var leased atomic.Int64
		for range 4 {
			callers.Go(func() {
				results := make([]headgate.Result, len(charges))
				for range 500 {
					if err := l.node.Take(l.Context(), charges, results); err != nil || !results[0].Allowed {
						l.Errorf("%+v: %v", results, err)
					}
					if results[0].Path == headgate.PathLease {
						leased.Add(1)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		callers.Wait()
		if !slices.Equal(charges, []headgate.Charge{a, b}) || leased.Load() == 0 {
			l.Errorf("%+v, %d leased", charges, leased.Load())
		}
	})
}

// A candidate is counted as the store would, even while the limit that it is to replace denies.
func TestCandidatesAreCounted(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		live, candidate := yearly(headgate.FixedWindow, 500), yearly(headgate.FixedWindow, 800)
		candidate.Counter, candidate.Twin, candidate.Observe = live.Counter+1, live.Counter, true
		alone := memstore.New(memstore.Options{})
		for i := range 1_000 {
			got := l.take(live, candidate)
			want, err := take(alone, live, candidate)
			if err != nil || !slices.EqualFunc(got, want, sameResult) {
				l.Fatalf("%d: %+v, want %+v: %v", i, got, want, err)
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func sameResult(a, b headgate.Result) bool {
	return a.Allowed == b.Allowed && a.Granted == b.Granted && a.Remaining == b.Remaining && a.RetryAfter == b.RetryAfter &&
		a.ResetAfter == b.ResetAfter && a.Time.Equal(b.Time) && errors.Is(a.Err, b.Err)
}
