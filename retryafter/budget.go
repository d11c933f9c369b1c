package retryafter

import (
	"sync"
	"time"
)

const (
	defaultRatio = 0.1
	defaultBurst = 10

	// budgetTime is the time in which an empty budget refills, so that a program with few requests can retry occasionally.
	budgetTime = 10 * time.Second
)

// budget bounds retries: n requests within time t cause at most burst + ratio × n + burst × t / budgetTime retries.
//
// The credit is kept as a duration, at most budgetTime. Elapsed time is added to it, each request adds ratio × the price of a retry,
// and burst retries cost budgetTime. This makes the budget exact without a timer.
type budget struct {
	price  time.Duration // of a retry
	income time.Duration // of a request

	mu     sync.Mutex
	credit time.Duration
	at     time.Time // the time of the last refill
}

func newBudget(ratio float64, burst int, now time.Time) *budget {
	if !(ratio > 0) { // also replaces NaN
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

// earn adds the credit of one request.
func (b *budget) earn(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	b.credit = min(b.credit+b.income, budgetTime)
}

// spend pays for a retry. It returns false if the credit is too low.
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

// refill adds the time since the last call. now may be earlier than in the last call, because goroutines race.
func (b *budget) refill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.credit += min(passed, budgetTime-b.credit)
		b.at = now
	}
}
