package check

import (
	"sync"
	"sync/atomic"
)

// Budget is an amount of which callers take parts and return them. It begins empty.
type Budget struct{ left atomic.Int64 }

// Take takes up to n and returns the amount taken.
func (b *Budget) Take(n int64) int64 {
	for {
		left := b.left.Load()
		taken := min(n, left)
		if taken <= 0 {
			return 0
		}
		if b.left.CompareAndSwap(left, left-taken) {
			return taken
		}
	}
}

// Return adds n to the budget.
func (b *Budget) Return(n int64) { b.left.Add(n) }

// Each calls decide with each index below n, with the given number of concurrent workers, and returns when all calls have
// returned. A worker handles many requests: a new goroutine for each would have to grow its stack each time.
func Each(n int, workers int64, decide func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				decide(i)
			}
		})
	}
	group.Wait()
}
