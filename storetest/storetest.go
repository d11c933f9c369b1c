// Package storetest is the conformance suite for headgate.Store: scenarios that read as the specification, random comparison with
// the specification itself, exactness under concurrency, and the maximum numbers of holds, holders and log entries of a counter. It
// depends on no particular store. Call Run from a store's tests.
package storetest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Target is an empty store under test.
type Target struct {
	Store headgate.Store
	// SetTime sets the store's clock, which must not advance between calls.
	SetTime func(time.Time)
	// Group returns the group of a subject: the store decides the subjects of a group in one step. nil means that all subjects are
	// in one group. If one group of a request denies, the store refunds the others.
	Group func(headgate.Subject) int
}

// Run runs the suite: the scenarios, a random comparison of at least perAlgorithm charges with each algorithm, exactness under
// concurrency, and the maximum numbers of holds, holders and log entries. open returns a new target. With -short, Run compares a fiftieth of
// the charges and skips the maximum numbers.
func Run(t *testing.T, open func(testing.TB) Target, perAlgorithm int) {
	if testing.Short() {
		perAlgorithm /= 50
	}
	t.Run("Scenarios", func(t *testing.T) { playScenarios(t, open) })
	t.Run("Compare", func(t *testing.T) { compareAll(t, open, perAlgorithm) })
	t.Run("Exact", func(t *testing.T) { exact(t, open(t)) })
	t.Run("Maximums", func(t *testing.T) {
		if testing.Short() {
			t.Skip("long")
		}
		maximums(t, open(t))
	})
	t.Run("Lengths", func(t *testing.T) {
		store := open(t).Store
		for _, n := range []int{1, 3} {
			if err := store.Take(t.Context(), make([]headgate.Charge, 2), make([]headgate.Result, n)); err == nil {
				t.Errorf("two charges and %d results were accepted", n)
			}
		}
	})
}

// maximums requests more holds and holders, and forces more charges into a log, than a counter may have.
func maximums(t *testing.T, target Target) {
	bucket, log := headgate.PerHour(1_000_000), headgate.Limit{Algorithm: headgate.SlidingLog, Count: headgate.MaxLogCount, Window: time.Hour}
	subject := headgate.SubjectOf("many")
	hold := headgate.Charge{
		Subject: subject, Counter: headgate.CounterOf("bucket", "", bucket.Algorithm), Limit: bucket, Cost: 1, Hold: time.Minute,
	}
	force := headgate.Charge{Subject: subject, Counter: headgate.CounterOf("log", "", log.Algorithm), Limit: log, Cost: 1, Force: true}
	peek := func(c headgate.Charge) headgate.Charge {
		c.Cost, c.Hold, c.Force = 0, 0, false
		return c
	}
	specification := newModel(target.Group)
	both := func(at time.Time, charges []headgate.Charge) []headgate.Result {
		got, err := target.takeBoth(t.Context(), specification, charges, at)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		return got
	}
	const batch, more = 50, 3
	const apart = 2 * time.Microsecond
	at := epoch
	for made := 0; made < headgate.MaxHolds; made += batch {
		at = at.Add(apart)
		for _, r := range both(at, slices.Repeat([]headgate.Charge{hold}, batch)) {
			if !r.Allowed {
				t.Fatalf("after %d holds: %+v", made, r)
			}
		}
	}
	if r := both(at, []headgate.Charge{hold})[0]; r.Allowed || r.RetryAfter == 0 || r.Remaining != bucket.Count-headgate.MaxHolds {
		t.Errorf("one hold too many: %+v", r)
	}
	for range headgate.MaxLogCount + more {
		at = at.Add(apart)
		both(at, []headgate.Charge{force})
	}
	// In a dense log, a charge between two entries is merged into the newer one.
	between := force
	between.Age = 250*apart + apart/2
	both(at, []headgate.Charge{between})
	costly := peek(force)
	for _, cost := range []int64{1, 2, 300, headgate.MaxLogCount / 2, headgate.MaxLogCount} {
		costly.Cost = cost
		both(at, []headgate.Charge{costly})
	}
	at = epoch.Add(time.Minute + 4*time.Second)
	if r := both(at, []headgate.Charge{hold})[0]; !r.Allowed {
		t.Errorf("denied although holds have expired: %+v", r)
	}
	maxHolders(t, both)
	for i := range 400 {
		both(epoch.Add(time.Hour+time.Duration(i*i)*apart/2), []headgate.Charge{peek(hold), peek(force)})
	}
}

// maxHolders has more holders acquire units than a counter may have, with long and with short leases.
func maxHolders(t *testing.T, both func(time.Time, []headgate.Charge) []headgate.Result) {
	limit := headgate.Limit{Algorithm: headgate.Concurrency, Count: headgate.MaxCost, Window: time.Minute}
	operation := func(holder int, op headgate.SlotOp, cost int64) []headgate.Charge {
		c := headgate.Charge{
			Subject: headgate.SubjectOf("many"), Counter: headgate.CounterOf("slots", "", limit.Algorithm), Limit: limit, Cost: cost,
			Slots: op, Holder: uint64(holder) * 0x9E3779B97F4A7C15, Seq: int64(holder),
		}
		return []headgate.Charge{c}
	}
	for holder := range headgate.MaxHolders {
		if holder == headgate.MaxHolders/2 {
			limit.Window = time.Hour
		}
		if r := both(epoch, operation(holder, headgate.AcquireSlots, 2))[0]; !r.Allowed {
			t.Fatalf("after %d holders: %+v", holder, r)
		}
	}
	const more = headgate.MaxHolders
	for _, op := range []headgate.SlotOp{headgate.AcquireSlots, headgate.SetSlots, headgate.ReleaseSlots} {
		if r := both(epoch, operation(more, op, 1))[0]; r.Granted > 0 || r.HolderUnits > 0 {
			t.Errorf("one holder too many, operation %d: %+v", op, r)
		}
	}
	force := operation(more, headgate.AcquireSlots, 1)
	force[0].Force = true
	both(epoch, force)
	both(epoch, operation(more, headgate.AcquireSlots, 0))
	both(epoch, append(operation(7, headgate.AcquireSlots, 1), operation(600, headgate.ReleaseSlots, 1)...))
	if r := both(epoch.Add(time.Minute), operation(more, headgate.AcquireSlots, 1))[0]; !r.Allowed {
		t.Errorf("denied although half of the holders have expired: %+v", r)
	}
}

// exact has many goroutines compete for limits of 500, each request with two subjects: exactly 500 requests are allowed, and as many
// units are recorded on both subjects.
func exact(t *testing.T, target Target) {
	const limit, callers = 500, 50
	target.SetTime(epoch)
	for a := headgate.TokenBucket; a <= headgate.Concurrency; a++ {
		if a == headgate.LeakyBucket {
			continue // it spaces requests: it allows one at a time
		}
		charges := []headgate.Charge{
			{Subject: headgate.SubjectOf("exact", "small"), Limit: headgate.Limit{Algorithm: a, Count: limit, Window: time.Hour}, Cost: 1},
			{Subject: headgate.SubjectOf("exact", "large"), Limit: headgate.Limit{Algorithm: a, Count: 2 * limit, Window: time.Hour}, Cost: 1},
		}
		for i := range charges {
			charges[i].Counter = headgate.CounterOf("exact", "", a)
		}
		var allowed atomic.Int64
		var done sync.WaitGroup
		for range callers {
			done.Go(func() {
				for range 2 * limit / callers {
					results := make([]headgate.Result, len(charges))
					if err := target.Store.Take(context.Background(), charges, results); err != nil {
						t.Error(err)
						return
					}
					allowed.Add(results[0].Granted)
				}
			})
		}
		done.Wait()
		left := make([]headgate.Result, len(charges))
		for i := range charges {
			peek := charges[i]
			peek.Cost = 0
			if err := target.Store.Take(t.Context(), []headgate.Charge{peek}, left[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if allowed.Load() != limit || left[0].Remaining != 0 || left[1].Remaining != limit {
			t.Errorf("%s: allowed %d of %d; %d and %d remain, not 0 and %d", a, allowed.Load(), limit,
				left[0].Remaining, left[1].Remaining, limit)
		}
	}
}
