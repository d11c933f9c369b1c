package check

import (
	"sync"
	"sync/atomic"
)

// Budget is an amount of which callers take parts and give them back. It begins empty.
type Budget struct{ left atomic.Int64 }

// Take returns how much of n there was.
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

// Give adds to the budget.
func (b *Budget) Give(n int64) { b.left.Add(n) }

// Each calls decide with each number below n, by so many workers at a time, and returns when all calls have. A worker stays for
// many requests: a new goroutine for each would have to grow its stack each time.
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
