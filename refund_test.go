package headgate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestRefund checks that a refund gives back what still counts. Each case charges 6 units at noon and 4 more after a wait. After
// another wait it refunds the first charge, then the second.
func TestRefund(t *testing.T) {
	t.Parallel()
	of := func(a headgate.Algorithm, align headgate.Align) headgate.Limit {
		return headgate.Limit{Algorithm: a, Count: 60, Window: time.Minute, Align: align}
	}
	const second = time.Second
	tests := []struct {
		name          string
		limit         headgate.Limit
		between, then time.Duration
		first, other  int64 // units given back
		remaining     int64
	}{
		// A bucket leaks the oldest units first.
		{"token bucket at once", headgate.PerMinute(60), 0, 0, 6, 4, 60},
		{"token bucket after 2 units leaked", headgate.PerMinute(60), second, second, 4, 4, 60},
		{"token bucket after the first charge leaked", headgate.PerMinute(60), second, 6 * second, 0, 3, 60},
		{"token bucket after all leaked", headgate.PerMinute(60), second, 9 * second, 0, 0, 60},
		// A leaky bucket refunds only the last charge in the queue.
		{"leaky bucket", of(headgate.LeakyBucket, 0), 0, 0, 0, 4, 55},
		{"leaky bucket after 2 units leaked", of(headgate.LeakyBucket, 0), second, second, 0, 4, 57},
		// A window refunds until it ends.
		{"window from the first charge", of(headgate.FixedWindow, headgate.FromFirst), second, 58 * second, 6, 4, 60},
		{"window from the first charge, over", of(headgate.FixedWindow, headgate.FromFirst), second, 59 * second, 0, 0, 60},
		{"window on the clock", of(headgate.FixedWindow, headgate.OnClock), second, 58 * second, 6, 4, 60},
		{"window on the clock, over in between", of(headgate.FixedWindow, headgate.OnClock), 60 * second, second, 0, 4, 60},
		{"window on the clock, over", of(headgate.FixedWindow, headgate.OnClock), second, 59 * second, 0, 0, 60},
		{"calendar day", headgate.Quota(60, headgate.Day, nil), time.Hour, 11*time.Hour - second, 6, 4, 60},
		{"calendar day, over in between", headgate.Quota(60, headgate.Day, nil), 12 * time.Hour, second, 0, 4, 60},
		{"sliding window", of(headgate.SlidingWindow, 0), second, 58 * second, 6, 4, 60},
		{"sliding window, over in between", of(headgate.SlidingWindow, 0), 60 * second, second, 0, 4, 54},
		{"sliding window, over", of(headgate.SlidingWindow, 0), second, 59 * second, 0, 0, 50},
		{"sliding window on the clock", of(headgate.SlidingWindow, headgate.OnClock), second, 58 * second, 6, 4, 60},
		{"sliding window on the clock, over in between", of(headgate.SlidingWindow, headgate.OnClock), 60 * second, second, 0, 4, 54},
		{"sliding window on the clock, over", of(headgate.SlidingWindow, headgate.OnClock), second, 59 * second, 0, 0, 50},
		// A log refunds the charge's own entry.
		{"sliding log", of(headgate.SlidingLog, 0), second, 58 * second, 6, 4, 60},
		{"sliding log, both in one entry", of(headgate.SlidingLog, 0), 0, 0, 6, 4, 60},
		{"sliding log, first entry over", of(headgate.SlidingLog, 0), second, 59 * second, 0, 4, 60},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := meter{limit: test.limit, now: time.Date(2025, 8, 1, 12, 0, 0, 0, time.UTC).UnixMicro()}
			charge := func(cost int64, back headgate.Receipt) headgate.Result {
				return m.take(headgate.Charge{Cost: cost, MaxDelay: time.Minute, Refund: back})
			}
			first := charge(6, headgate.Receipt{})
			m.wait(test.between)
			other := charge(4, headgate.Receipt{})
			m.wait(test.then)
			if got := charge(6, first.Receipt).Granted; got != test.first {
				t.Errorf("%d units of the first charge were refunded, want %d", got, test.first)
			}
			last := charge(4, other.Receipt)
			if last.Granted != test.other || last.Remaining != test.remaining {
				t.Errorf("%d units of the second charge were refunded and %d remain, want %d and %d", last.Granted, last.Remaining, test.other, test.remaining)
			}
		})
	}
}

// TestRefundAfterTheRateWasLowered checks that units that leaked at the old rate are not refunded at a slower new rate: of 30 units,
// 10 leaked before the change and one after it.
func TestRefundAfterTheRateWasLowered(t *testing.T) {
	t.Parallel()
	m := meter{limit: headgate.PerMinute(60), now: 1_700_000_000_000_000}
	first := m.take(headgate.Charge{Cost: 30})
	m.wait(10 * time.Second)
	m.take(headgate.Charge{Cost: 25})
	m.limit = headgate.Limit{Count: 6, Window: time.Minute, Burst: 60}
	m.wait(10 * time.Second)
	if got := m.take(headgate.Charge{Cost: 30, Refund: first.Receipt}).Granted; got > 19 {
		t.Errorf("%d units were refunded, but only 19 had not leaked", got)
	}
}

// TestRefundsInAnyOrder refunds many charges on a bucket, in any order and with other charges in between. A refund is never more than
// what is left of its charge in a bucket that drains first in, first out, and no less than what cannot have leaked.
func TestRefundsInAnyOrder(t *testing.T) {
	t.Parallel()
	type batch struct {
		receipt headgate.Receipt
		left    float64 // of its own units
		at      int64
	}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		limit := headgate.Limit{Count: 1 + random.Int64N(100), Window: time.Duration(1+random.Int64N(1000)) * time.Second, Burst: 1_000_000}
		rate := float64(limit.Count) / float64(limit.Window.Microseconds())
		m := meter{limit: limit, now: 1_700_000_000_000_000}
		var queue []*batch // oldest first
		drain := func(span time.Duration) {
			gone := rate * float64(span.Microseconds())
			for _, b := range queue {
				take := min(b.left, gone)
				b.left, gone = b.left-take, gone-take
			}
			m.wait(span)
		}
		for step := range 200 {
			drain(time.Duration(random.Int64N(int64(limit.Window)/limit.Count/4)) / 1000 * 1000)
			if len(queue) == 0 || random.IntN(2) == 0 {
				cost := 1 + random.Int64N(5)
				r := m.take(headgate.Charge{Cost: cost})
				queue = append(queue, &batch{receipt: r.Receipt, left: float64(cost), at: m.now})
				continue
			}
			i := random.IntN(len(queue))
			b := queue[i]
			if b.receipt.Units == 0 {
				continue // already refunded
			}
			level := func() float64 {
				return max(0, float64(m.state.Used)/millionth-rate*float64(m.now-m.state.Time))
			}
			before := level()
			m.take(headgate.Charge{Cost: b.receipt.Units, Refund: b.receipt})
			given := before - level()
			leaked := rate*float64(m.now-b.at) + 1e-3
			if given > b.left+1e-3 || given < float64(b.receipt.Units)-leaked {
				t.Fatalf("seed %d, step %d: %v of %d units were refunded, %v were left, and at most %v have leaked",
					seed, step, given, b.receipt.Units, b.left, leaked)
			}
			b.left -= given // the rest still drains
			b.receipt.Units = 0
		}
	}
}

// TestRefundAfterCredit checks that a refund gives back nothing that an earlier credit may already have given back.
func TestRefundAfterCredit(t *testing.T) {
	t.Parallel()
	m := meter{limit: headgate.PerDay(10), now: 1_700_000_000_000_000}
	first := m.take(headgate.Charge{Cost: 6})
	m.wait(time.Millisecond)
	m.take(headgate.Charge{Cost: headgate.MaxCost, Credit: true})
	m.wait(time.Millisecond)
	second := m.take(headgate.Charge{Cost: 4})
	if r := m.take(headgate.Charge{Cost: 6, Refund: first.Receipt}); r.Granted != 0 || r.Remaining != 6 {
		t.Errorf("%d units were refunded a second time, %d remain", r.Granted, r.Remaining)
	}
	m.wait(time.Millisecond)
	if r := m.take(headgate.Charge{Cost: 4, Refund: second.Receipt}); r.Granted < 3 || r.Remaining < 9 {
		t.Errorf("%d of 4 units were refunded, %d remain", r.Granted, r.Remaining)
	}
}
