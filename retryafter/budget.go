package retryafter

import (
	"sync"
	"time"
)

const (
	defaultRatio = 0.1
	defaultBurst = 10

	// budgetTime fills an empty budget, so that a program that sends little can retry now and then.
	budgetTime = 10 * time.Second
)

// budget bounds retries: of n requests in a time t at most burst + ratio × n + burst × t / budgetTime are sent again.
//
// It is kept as time. Waiting adds what has passed, a request adds what a ratio of a retry costs, and burst retries
// cost budgetTime, which is the most that it holds. So it is exact, and needs no timer.
type budget struct {
	price  time.Duration // of a retry
	income time.Duration // of a request

	mu     sync.Mutex
	credit time.Duration
	at     time.Time // when credit was right
}

func newBudget(ratio float64, burst int, now time.Time) *budget {
	if !(ratio > 0) { // not a number is no ratio either
		ratio = defaultRatio
	}
	if burst <= 0 {
		burst = defaultBurst
	}
	price := budgetTime / time.Duration(burst)
	return &budget{
		price:  price,
		income: time.Duration(min(ratio*float64(price), float64(budgetTime))),
		credit: budgetTime,
		at:     now,
	}
}

// earn is called for each request.
func (b *budget) earn(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	b.credit = min(b.credit+b.income, budgetTime)
}

// spend is called for each retry, and says whether there is enough left for it.
func (b *budget) spend(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	if b.credit < b.price {
		return false
	}
	b.credit -= b.price
	return true
}

// refill adds the time since the last call. Goroutines may come in another order than they looked at the clock.
func (b *budget) refill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.credit += min(passed, budgetTime-b.credit)
		b.at = now
	}
}
