package retryafter

import (
	"math"
	"testing"
	"time"
)

// TestBudgetIsExact counts the retries granted to requests that are all denied. The first request adds nothing, because the budget is
// full.
func TestBudgetIsExact(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		ratio    float64
		burst    int
		requests int
		every    time.Duration
		want     int
	}{
		"at once":               {requests: 10_000, want: 10 + 999},
		"few":                   {requests: 9, want: 9},
		"other ratio":           {ratio: 0.25, burst: 4, requests: 1000, want: 4 + 249},
		"one of a burst":        {burst: 1, requests: 1000, want: 1 + 99},
		"all":                   {ratio: 1, requests: 1000, want: 1000},
		"more than all":         {ratio: math.Inf(1), requests: 1000, want: 1000},
		"no number":             {ratio: math.NaN(), burst: -1, requests: 10_000, want: 10 + 999},
		"no end":                {burst: math.MaxInt, requests: 10_000, want: 10_000},
		"slow":                  {requests: 1000, every: time.Second, want: 1000},
		"ten a second":          {requests: 1000, every: 100 * time.Millisecond, want: 9 + 100 + 100},
		"a pause fills no more": {requests: 2, every: time.Hour, want: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBudget(test.ratio, test.burst, now)
			granted := 0
			for i := range test.requests {
				at := now.Add(time.Duration(i) * test.every)
				b.earn(at)
				if b.spend(at) {
					granted++
				}
			}
			if granted != test.want {
				t.Errorf("%d retries for %d requests, want %d", granted, test.requests, test.want)
			}
		})
	}
}

func TestBudgetHoldsNoMoreThanItsBurst(t *testing.T) {
	t.Parallel()
	b := newBudget(0, 0, now)
	for range 10_000 {
		b.earn(now)
	}
	later := now.Add(time.Hour)
	b.earn(later)
	if !b.spend(now) { // a goroutine with an old time
		t.Error("an earlier time empties the budget")
	}
	later = later.Add(time.Hour)
	granted := 0
	for b.spend(later) {
		granted++
	}
	if granted != defaultBurst {
		t.Errorf("%d retries after much success, want %d", granted, defaultBurst)
	}
	if b.spend(now) {
		t.Error("an earlier time fills the budget")
	}
	if b.spend(later.Add(time.Second - 1)) {
		t.Error("a retry in less than a second")
	}
	if !b.spend(later.Add(time.Second)) {
		t.Error("no retry after a second")
	}
}
