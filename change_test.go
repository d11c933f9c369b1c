package headgate_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestUsedUnitsSurviveAChange checks that changing the numbers of a limit keeps the used units. Each case uses some units at noon,
// waits, changes the limit and peeks.
func TestUsedUnitsSurviveAChange(t *testing.T) {
	t.Parallel()
	token := func(n int64, window time.Duration, burst int64) headgate.Limit {
		return headgate.Limit{Count: n, Window: window, Burst: burst}
	}
	of := func(a headgate.Algorithm, n int64, window time.Duration) headgate.Limit {
		return headgate.Limit{Algorithm: a, Count: n, Window: window}
	}
	onClock := func(n int64, window time.Duration) headgate.Limit {
		return headgate.Limit{Algorithm: headgate.FixedWindow, Count: n, Window: window, Align: headgate.OnClock}
	}
	const (
		second = time.Second
		minute = time.Minute
		hour   = time.Hour
	)
	tests := []struct {
		name   string
		before headgate.Limit
		use    int64
		wait   time.Duration
		after  headgate.Limit

		remaining  int64
		retryAfter time.Duration // of one unit
		resetAfter time.Duration
	}{
		// A bucket keeps its level: the new capacity minus what was taken and has not leaked yet is available.
		{"token bucket doubled while empty", token(10, minute, 0), 10, 0, token(20, minute, 0), 10, 0, 30 * second},
		{"token bucket doubled while half full", token(10, minute, 0), 5, 0, token(20, minute, 0), 15, 0, 15 * second},
		{"token bucket halved while nearly full", token(10, minute, 0), 2, 0, token(5, minute, 0), 3, 0, 12 * second},
		{"burst raised while empty", token(60, minute, 10), 10, 0, token(60, minute, 25), 15, 0, 10 * second},
		{"burst lowered while empty", token(60, minute, 10), 10, 0, token(60, minute, 4), 0, 7 * second, 10 * second},
		{"burst lowered below what is left", token(60, minute, 10), 3, 0, token(60, minute, 5), 2, 0, 3 * second},
		{"window of a token bucket shortened", token(10, minute, 0), 10, 0, token(10, 10*second, 0), 0, second, 10 * second},
		// The old bucket would have been full again after a minute: a change makes no client wait longer.
		{"token bucket halved while empty", token(10, minute, 0), 10, 0, token(5, minute, 0), 0, minute, minute},
		{"window of a token bucket lengthened", token(10, minute, 0), 10, 0, token(10, hour, 0), 0, minute, minute},
		{"token bucket doubled after a while", token(10, minute, 0), 10, 30 * second, token(20, minute, 0), 20, 0, 0},
		{"token bucket made ten times as fast", token(10, minute, 0), 10, 3 * second, token(100, minute, 0), 95, 0, 3 * second},

		{"leaky bucket doubled", of(headgate.LeakyBucket, 10, minute), 10, 0, of(headgate.LeakyBucket, 20, minute), 0, 30 * second, 30 * second},
		{"leaky bucket halved", of(headgate.LeakyBucket, 10, minute), 5, 0, of(headgate.LeakyBucket, 5, minute), 0, 30 * second, 30 * second},
		{"window of a leaky bucket shortened", of(headgate.LeakyBucket, 10, minute), 10, 0, of(headgate.LeakyBucket, 10, second), 0, second, second},

		// A window keeps its count and its start.
		{"fixed window doubled while used up", of(headgate.FixedWindow, 10, minute), 10, 0, of(headgate.FixedWindow, 20, minute), 10, 0, minute},
		{"fixed window halved while used up", of(headgate.FixedWindow, 10, minute), 10, 0, of(headgate.FixedWindow, 5, minute), 0, minute, minute},
		{"fixed window halved", of(headgate.FixedWindow, 10, minute), 2, 0, of(headgate.FixedWindow, 5, minute), 3, 0, minute},
		{"fixed window shortened", of(headgate.FixedWindow, 10, minute), 10, 10 * second, of(headgate.FixedWindow, 10, 30*second), 0, 20 * second, 20 * second},
		{"fixed window shortened to the past", of(headgate.FixedWindow, 10, minute), 10, 10 * second, of(headgate.FixedWindow, 10, 5*second), 10, 0, 0},
		{"fixed window lengthened", of(headgate.FixedWindow, 10, minute), 10, 10 * second, of(headgate.FixedWindow, 10, hour), 0, 50 * second, 50 * second},
		{"clock window doubled while used up", onClock(10, hour), 10, 10 * minute, onClock(20, hour), 10, 0, 50 * minute},
		{"clock window halved", onClock(10, hour), 7, 10 * minute, onClock(5, hour), 0, 50 * minute, 50 * minute},
		{"clock window shortened", onClock(10, hour), 7, 10 * minute, onClock(10, 15*minute), 3, 0, 5 * minute},
		{"clock window lengthened", onClock(10, hour), 7, 10 * minute, onClock(10, 2*hour), 3, 0, 50 * minute},
		{"quota doubled", headgate.Quota(10, headgate.Month, nil), 10, hour, headgate.Quota(20, headgate.Month, nil), 10, 0, 30*24*hour + 11*hour},
		{"quota halved", headgate.Quota(10, headgate.Day, nil), 3, hour, headgate.Quota(5, headgate.Day, nil), 2, 0, 11 * hour},
		{"quota per day made one per month", headgate.Quota(10, headgate.Day, nil), 3, hour, headgate.Quota(300, headgate.Month, nil), 297, 0, 11 * hour},

		{"sliding window doubled while used up", of(headgate.SlidingWindow, 10, minute), 10, 0, of(headgate.SlidingWindow, 20, minute), 10, 0, minute},
		{"sliding window halved while used up", of(headgate.SlidingWindow, 10, minute), 10, 0, of(headgate.SlidingWindow, 5, minute), 0, 96 * second, minute},
		{"sliding window doubled in the next window", of(headgate.SlidingWindow, 10, minute), 10, 90 * second, of(headgate.SlidingWindow, 20, minute), 15, 0, 30 * second},
		{"sliding window halved in the next window", of(headgate.SlidingWindow, 10, minute), 10, 90 * second, of(headgate.SlidingWindow, 5, minute), 0, 6 * second, 30 * second},
		{"sliding window shortened", of(headgate.SlidingWindow, 10, minute), 10, 20 * second, of(headgate.SlidingWindow, 10, 16*second), 2, 0, 12 * second},
		{"sliding window lengthened", of(headgate.SlidingWindow, 10, minute), 6, 30 * second, of(headgate.SlidingWindow, 10, 10*minute), 4, 0, 90 * second},

		{"sliding log doubled while used up", of(headgate.SlidingLog, 10, minute), 10, second, of(headgate.SlidingLog, 20, minute), 10, 0, 59 * second},
		{"sliding log halved while used up", of(headgate.SlidingLog, 10, minute), 10, second, of(headgate.SlidingLog, 5, minute), 0, 59 * second, 59 * second},
		{"sliding log shortened", of(headgate.SlidingLog, 10, minute), 10, 10 * second, of(headgate.SlidingLog, 10, 15*second), 0, 5 * second, 5 * second},
		{"sliding log lengthened", of(headgate.SlidingLog, 10, minute), 4, 10 * second, of(headgate.SlidingLog, 10, hour), 6, 0, 50 * second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := meter{limit: test.before, now: time.Date(2025, 8, 1, 12, 0, 0, 0, time.UTC).UnixMicro()}
			if got := m.take(headgate.Charge{Cost: test.use}).Granted; got != test.use {
				t.Fatalf("used %d, want %d", got, test.use)
			}
			m.wait(test.wait)
			m.limit = test.after
			got := m.preview(headgate.Charge{}, 0)
			if got.Remaining != test.remaining || got.RetryAfter != test.retryAfter || got.ResetAfter != test.resetAfter {
				t.Errorf("remaining %d, retry after %v, reset after %v; want %d, %v, %v",
					got.Remaining, got.RetryAfter, got.ResetAfter, test.remaining, test.retryAfter, test.resetAfter)
			}
			if got := m.takeAll().Granted; got != test.remaining && test.after.Algorithm != headgate.LeakyBucket {
				t.Errorf("took %d at once, want %d", got, test.remaining)
			}
		})
	}
}

// TestDoubledLimitAppliesAtOnce checks that a denied client whose limit is doubled is allowed at once, for exactly what was added.
func TestDoubledLimitAppliesAtOnce(t *testing.T) {
	t.Parallel()
	for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
		if a == headgate.LeakyBucket {
			continue // it delays instead of counting; the delay is halved
		}
		m := meter{limit: headgate.Limit{Algorithm: a, Count: 500, Window: time.Hour}, now: 1_700_000_000_000_000}
		if got := m.takeAll().Granted; got != 500 {
			t.Fatalf("%s: took %d of 500", a, got)
		}
		if m.take(headgate.Charge{Cost: 1}).Allowed {
			t.Fatalf("%s: took more than 500", a)
		}
		m.limit.Count *= 2
		if got := m.takeAll().Granted; got != 500 {
			t.Errorf("%s: doubled, it allows %d, want 500", a, got)
		}
		m.limit.Count /= 2
		if got := m.preview(headgate.Charge{Cost: 1}, 0); got.Allowed || got.Remaining != 0 {
			t.Errorf("%s: halved again, it allows: %+v", a, got)
		}
	}
}

// TestClockWindowCutShort shortens an aligned window: the used units count in the shorter window that contains the last charge.
func TestClockWindowCutShort(t *testing.T) {
	t.Parallel()
	m := meter{
		limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Window: time.Hour, Align: headgate.OnClock},
		now:   time.Date(2025, 8, 1, 12, 0, 0, 0, time.UTC).UnixMicro(),
	}
	m.take(headgate.Charge{Cost: 7})
	m.wait(20 * time.Minute)
	m.take(headgate.Charge{Cost: 1})
	m.wait(5 * time.Minute)
	m.limit.Window = 15 * time.Minute
	if got := m.preview(headgate.Charge{}, 0).Remaining; got != 2 {
		t.Errorf("%d remain at 12:25, want 2", got)
	}
	if got := m.preview(headgate.Charge{}, 5*time.Minute).Remaining; got != 10 {
		t.Errorf("%d remain at 12:30, want 10", got)
	}
}
