package headgate_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// A refund gives back what still counts. Each case charges 6 units at noon and 4 more after a while, and after another
// gives back the first charge, then the second.
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
		// A bucket leaks first what was charged first.
		{"token bucket at once", headgate.PerMinute(60), 0, 0, 6, 4, 60},
		{"token bucket after 2 units leaked", headgate.PerMinute(60), second, second, 4, 4, 60},
		{"token bucket after the first charge leaked", headgate.PerMinute(60), second, 6 * second, 0, 3, 60},
		{"token bucket after all leaked", headgate.PerMinute(60), second, 9 * second, 0, 0, 60},
		// A leaky bucket gives back only what nobody waits behind.
		{"leaky bucket", of(headgate.LeakyBucket, 0), 0, 0, 0, 4, 55},
		{"leaky bucket after 2 units leaked", of(headgate.LeakyBucket, 0), second, second, 0, 4, 57},
		// A window gives back until it is over.
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
		// A log gives back to the charge's own entry.
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
				t.Errorf("%d units of the first charge came back, want %d", got, test.first)
			}
			last := charge(4, other.Receipt)
			if last.Granted != test.other || last.Remaining != test.remaining {
				t.Errorf("%d units of the second charge came back and %d remain, want %d and %d", last.Granted, last.Remaining, test.other, test.remaining)
			}
		})
	}
}

// What leaked at the old rate does not come back because the new one is slower: of 30 units, 10 leaked before the change
// and one after it.
func TestRefundAfterTheRateWasLowered(t *testing.T) {
	t.Parallel()
	m := meter{limit: headgate.PerMinute(60), now: 1_700_000_000_000_000}
	first := m.take(headgate.Charge{Cost: 30})
	m.wait(10 * time.Second)
	m.take(headgate.Charge{Cost: 25})
	m.limit = headgate.Limit{Count: 6, Window: time.Minute, Burst: 60}
	m.wait(10 * time.Second)
	if got := m.take(headgate.Charge{Cost: 30, Refund: first.Receipt}).Granted; got > 19 {
		t.Errorf("%d units came back, and only 19 had not leaked", got)
	}
}
