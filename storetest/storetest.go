// Package storetest is what every headgate.Store must do: scenarios that read as the specification, random comparison
// with the specification itself, exactness under concurrency, and the bounds of what a counter keeps apart. It knows no store by name.
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

// Target is a store under test, fresh and empty.
type Target struct {
	Store headgate.Store
	// SetTime sets the store's clock, which stands still in between.
	SetTime func(time.Time)
	// Group says which subjects the store decides in one step; nil means all. Where one group of a request denies, the
	// others are refunded.
	Group func(headgate.Subject) int
}

// Run holds a store to the suite: the scenarios, a random comparison of at least perAlgorithm charges with each algorithm,
// exactness under concurrency. open makes a fresh target. With -short it compares a fiftieth, and does not fill a counter up.
func Run(t *testing.T, open func(testing.TB) Target, perAlgorithm int) {
	if testing.Short() {
		perAlgorithm /= 50
	}
	t.Run("Scenarios", func(t *testing.T) { playScenarios(t, open) })
	t.Run("Compare", func(t *testing.T) { compareAll(t, open, perAlgorithm) })
	t.Run("Exact", func(t *testing.T) { exact(t, open(t)) })
	t.Run("Many", func(t *testing.T) {
		if testing.Short() {
			t.Skip("long")
		}
		many(t, open(t))
	})
	t.Run("Lengths", func(t *testing.T) {
		store := open(t).Store
		for _, n := range []int{1, 3} {
			if err := store.Take(t.Context(), make([]headgate.Charge, 2), make([]headgate.Result, n)); err == nil {
				t.Errorf("two charges and %d results were taken without complaint", n)
			}
		}
	})
}

// many asks for more holds, and forces more charges into a log, than a counter may have.
func many(t *testing.T, target Target) {
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
	// In a dense log, what was taken between two entries joins the newer.
	between := force
	between.Age = 250*apart + apart/2
	both(at, []headgate.Charge{between})
	dear := peek(force)
	for _, cost := range []int64{1, 2, 300, headgate.MaxLogCount / 2, headgate.MaxLogCount} {
		dear.Cost = cost
		both(at, []headgate.Charge{dear})
	}
	at = epoch.Add(time.Minute + 4*time.Second)
	if r := both(at, []headgate.Charge{hold})[0]; !r.Allowed {
		t.Errorf("when some have ended there may be others: %+v", r)
	}
	for i := range 400 {
		both(epoch.Add(time.Hour+time.Duration(i*i)*apart/2), []headgate.Charge{peek(hold), peek(force)})
	}
}

// exact lets many callers fight over limits of 500, each request over two subjects: 500 are admitted, and as many units
// are recorded on both.
func exact(t *testing.T, target Target) {
	const limit, callers = 500, 50
	target.SetTime(epoch)
	for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
		if a == headgate.LeakyBucket {
			continue // it spaces charges out: at one moment it admits one
		}
		charges := []headgate.Charge{
			{Subject: headgate.SubjectOf("exact", "small"), Limit: headgate.Limit{Algorithm: a, Count: limit, Window: time.Hour}, Cost: 1},
			{Subject: headgate.SubjectOf("exact", "large"), Limit: headgate.Limit{Algorithm: a, Count: 2 * limit, Window: time.Hour}, Cost: 1},
		}
		for i := range charges {
			charges[i].Counter = headgate.CounterOf("exact", "", a)
		}
		var admitted atomic.Int64
		var done sync.WaitGroup
		for range callers {
			done.Go(func() {
				for range 2 * limit / callers {
					results := make([]headgate.Result, len(charges))
					if err := target.Store.Take(context.Background(), charges, results); err != nil {
						t.Error(err)
						return
					}
					admitted.Add(results[0].Granted)
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
		if admitted.Load() != limit || left[0].Remaining != 0 || left[1].Remaining != limit {
			t.Errorf("%s: admitted %d of %d; %d and %d remain, not 0 and %d", a, admitted.Load(), limit,
				left[0].Remaining, left[1].Remaining, limit)
		}
	}
}
