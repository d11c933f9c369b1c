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
	b.Return(100)
	if n := b.Take(-1); n != 0 {
		t.Errorf("took %d of -1", n)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1_000 {
				n := rand.Int64N(200)
				taken := b.Take(n)
				if left := b.left.Load(); left < 0 || taken > n {
					t.Errorf("took %d of %d, and %d are left", taken, n, left)
				}
				b.Return(taken)
			}
		})
	}
	wg.Wait()
	if n := b.Take(1_000); n != 100 {
		t.Errorf("%d are left, want 100", n)
	}
}

func TestEach(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 31, 1_000} {
		calls := make([]atomic.Int32, n)
		var running, maxRunning atomic.Int64
		Each(n, 4, func(i int) {
			calls[i].Add(1)
			now := running.Add(1)
			defer running.Add(-1)
			for known := maxRunning.Load(); now > known && !maxRunning.CompareAndSwap(known, now); known = maxRunning.Load() {
			}
		})
		for i := range calls {
			if c := calls[i].Load(); c != 1 {
				t.Errorf("%d of %d was decided %d times", i, n, c)
			}
		}
		if maxRunning.Load() > 4 {
			t.Errorf("%d at a time, want at most 4", maxRunning.Load())
		}
	}
}
