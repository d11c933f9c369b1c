package storewrap

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestConcurrencyIsPassedThrough checks that every charge on a concurrency limit reaches the store: no denial is cached, nothing is
// leased, and a failure leaves nothing to charge later.
func TestConcurrencyIsPassedThrough(t *testing.T) {
	t.Parallel()
	inLab(t, Options{Nodes: 2}, func(l *lab) {
		limit := headgate.Limit{Algorithm: headgate.Concurrency, Count: 100_000, Window: time.Hour}
		operation := func(op headgate.SlotOp, cost, seq int64) headgate.Charge {
			return headgate.Charge{
				Subject: headgate.SubjectOf("alice"), Counter: headgate.CounterOf("slots", "", limit.Algorithm), Limit: limit,
				Cost: cost, Slots: op, Holder: 7, Seq: seq,
			}
		}
		for n := range 1000 {
			if !l.callsStore(operation(headgate.AcquireSlots, 1, int64(n))) {
				t.Fatalf("acquire %d was decided without the store", n)
			}
		}
		all := operation(headgate.AcquireSlots, limit.Count, 2000)
		for range 3 {
			if r := l.take(all)[0]; r.Allowed || r.RetryAfter != headgate.Unknown || r.Path != "" {
				t.Errorf("denied: %+v", r)
			}
		}
		l.take(operation(headgate.ReleaseSlots, 1000, 2001))
		if r := l.take(all)[0]; !r.Allowed || r.HolderUnits != limit.Count || l.agent.Load() > 0 {
			t.Errorf("after the release: %+v; %d calls for leases", r, l.agent.Load())
		}

		l.fail(func([]headgate.Charge) error { return headgate.ErrUnavailable })
		forced := operation(headgate.AcquireSlots, 1, 3003)
		forced.Force = true
		for i, c := range []headgate.Charge{
			operation(headgate.AcquireSlots, 1, 3000), operation(headgate.ReleaseSlots, 1, 3001), operation(headgate.SetSlots, 1, 3002), forced,
		} {
			for _, failure := range []headgate.OnStoreFailure{headgate.FailLocal, headgate.FailAllow, headgate.FailDeny} {
				if i == 0 && failure == headgate.FailLocal {
					continue // TestConcurrencyWithoutStore
				}
				c.OnStoreFailure = failure
				r, err := take(l.node, c)
				if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(r[0].Err, headgate.ErrUnavailable) {
					t.Errorf("operation %d with %s: %v, %+v", i, failure, err, r)
				}
			}
		}
		l.fail(func([]headgate.Charge) error { return nil })
		time.Sleep(time.Minute)
		if r := l.take(operation(headgate.SetSlots, 5, 2003))[0]; r.HolderUnits != 5 || r.Remaining != limit.Count-5 {
			t.Errorf("after the outage: %+v", r)
		}
	})
}

// TestConcurrencyDeniesTogether checks that a request that a concurrency limit denies is not charged to its other limits.
func TestConcurrencyDeniesTogether(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		limit := headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: time.Hour}
		slot := headgate.Charge{Subject: headgate.SubjectOf("a"), Counter: headgate.CounterOf("slots", "", limit.Algorithm), Limit: limit, Cost: 1, Seq: 1}
		rate := yearly(headgate.FixedWindow, 3)
		for n := range 3 {
			slot.Holder = uint64(n)
			r := l.take(rate, slot)
			if want := n == 0; r[1].Allowed != want || (r[0].Granted == 1) != want {
				t.Errorf("request %d: %+v", n, r)
			}
		}
	})
}

// TestConcurrencyWithoutStore checks that nodes without a store admit as many requests as their shares of the limit add up to, and that
// what a request was charged elsewhere is given back if a share denies it.
func TestConcurrencyWithoutStore(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int64{1, 2, 3, 7} {
		for _, count := range []int64{1, 2, 20, 1000} {
			total := int64(0)
			for rank := range nodes {
				f := fallback{fleet: &fleet{}, percent: 100}
				f.fleet.members.Store(&members{nodes: nodes, rank: rank + 1})
				c := headgate.Charge{
					Subject: headgate.SubjectOf("a"), Counter: headgate.CounterOf("slots", "", headgate.Concurrency), Limit: headgate.Concurrent(count), Cost: 1,
				}
				for {
					r := headgate.Result{Err: headgate.ErrUnavailable}
					if f.decideSlots(time.Now(), &c, &r) != !r.Allowed || r.Path != headgate.PathLocal || r.Err != nil {
						t.Fatalf("%+v", r)
					}
					if !r.Allowed {
						if r.RetryAfter != headgate.Unknown || r.Granted != 0 {
							t.Errorf("denied: %+v", r)
						}
						break
					}
					c.InUse += r.Granted
				}
				total += c.InUse
			}
			if total != count {
				t.Errorf("%d nodes admit %d of %d", nodes, total, count)
			}
		}
	}
}

// TestConcurrencyShareDenies checks that a request that a node's share of a concurrency limit denies is charged nowhere.
func TestConcurrencyShareDenies(t *testing.T) {
	t.Parallel()
	inLab(t, Options{Nodes: 1}, func(l *lab) {
		rate := yearly(headgate.FixedWindow, 100)
		slot := headgate.Charge{Subject: rate.Subject, Counter: headgate.CounterOf("slots", "", headgate.Concurrency), Limit: headgate.Concurrent(2), Cost: 1}
		for slot.InUse = range int64(4) {
			charges, results := []headgate.Charge{rate, slot}, make([]headgate.Result, 2)
			granted, err := take(l.inner, rate)
			if err != nil {
				t.Fatal(err)
			}
			results[0], results[1].Err = granted[0], errGone
			err = l.node.fallback.decide(time.Now(), charges, results)
			if want := slot.InUse < 2; err != nil || results[1].Allowed != want || (results[0].Granted == 1) != want {
				t.Errorf("with %d in use: %v %+v", slot.InUse, err, results)
			}
		}
		if got := used(t, l.inner, rate); got != 2 {
			t.Errorf("%d are charged for two requests", got)
		}
	})
}
