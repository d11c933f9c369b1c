package check

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	var b Budget
	if n := b.Take(1); n != 0 {
		t.Errorf("took %d of an empty budget", n)
	}
	b.Give(100)
	if n := b.Take(-1); n != 0 {
		t.Errorf("took %d of -1", n)
	}
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 1_000 {
				n := rand.Int64N(200)
				taken := b.Take(n)
				if left := b.left.Load(); left < 0 || taken > n {
					t.Errorf("took %d of %d, and %d are left", taken, n, left)
				}
				b.Give(taken)
			}
		})
	}
	running.Wait()
	if n := b.Take(1_000); n != 100 {
		t.Errorf("%d are left, want 100", n)
	}
}

func TestEach(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 31, 1_000} {
		calls := make([]atomic.Int32, n)
		var running, most atomic.Int64
		Each(n, 4, func(i int) {
			calls[i].Add(1)
			now := running.Add(1)
			defer running.Add(-1)
			for known := most.Load(); now > known && !most.CompareAndSwap(known, now); known = most.Load() {
			}
		})
		for i := range calls {
			if c := calls[i].Load(); c != 1 {
				t.Errorf("%d of %d was decided %d times", i, n, c)
			}
		}
		if most.Load() > 4 {
			t.Errorf("%d at a time, want at most 4", most.Load())
		}
	}
}
