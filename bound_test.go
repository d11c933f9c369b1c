package headgate_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestBounds checks that no schedule gets more out of a limit than its algorithm promises, and that a search comes close to the
// bound: the bounds are tight.
func TestBounds(t *testing.T) {
	t.Parallel()
	for i, s := range scenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			const seed = 1
			g := newGenerator(seed, uint64(i))
			for _, moves := range []struct {
				name  string
				kinds int
			}{{"without refunds", refund}, {"with refunds", kinds}} {
				best, schedule, broken := s.search(g, moves.kinds, 8, 1_000)
				if broken != nil {
					t.Fatalf("seed %d, %s: %v: %v", seed, moves.name, broken, schedule)
				}
				if share := float64(best) / float64(s.bound); share < s.reach {
					t.Errorf("seed %d, %s: the search found %d of %d units: %v", seed, moves.name, best, s.bound, schedule)
				}
				t.Logf("%s: %d of %d", moves.name, best, s.bound)
			}
		})
	}
}

func scenarios(t *testing.T) []scenario {
	window := func(a headgate.Algorithm, n int64, w time.Duration) headgate.Limit {
		return headgate.Limit{Algorithm: a, Count: n, Window: w}
	}
	align := func(l headgate.Limit, to headgate.Align) headgate.Limit {
		l.Align = to
		return l
	}
	aligned := func(to headgate.Align) headgate.Limit {
		return align(window(headgate.FixedWindow, 20, time.Second), to)
	}
	berlin := zone(t, "Europe/Berlin")
	anchored := headgate.Quota(20, headgate.Month, berlin)
	anchored.AnchorDay = 31
	day := 24 * time.Hour
	return []scenario{
		{"token bucket", headgate.PerSecond(20), 0, time.Second, 20 + 20, 0.95},
		{"token bucket with a small burst", headgate.Limit{Count: 60, Window: time.Minute, Burst: 10}, 0, time.Minute, 10 + 60, 0.95},
		{"token bucket with a large burst", headgate.Limit{Count: 7, Window: time.Minute, Burst: 50}, 0, time.Minute, 50 + 7, 0.95},
		{"leaky bucket", window(headgate.LeakyBucket, 20, time.Second), 2 * time.Second, time.Second, 20 + 20, 0.95},
		{"sliding window", window(headgate.SlidingWindow, 40, time.Second), 0, time.Second, 80, 0.95},
		{"sliding window with coarse ticks", window(headgate.SlidingWindow, 40, time.Hour), 0, time.Hour, 80, 0.95},
		{"sliding window on the clock", align(window(headgate.SlidingWindow, 40, time.Second), headgate.OnClock), 0, time.Second, 80, 0.95},
		{"sliding window on the clock, spread", align(window(headgate.SlidingWindow, 40, time.Hour), headgate.OnClockSpread), 0, time.Hour, 80, 0.95},
		{"sliding log", window(headgate.SlidingLog, 20, time.Second), 0, time.Second, 20, 1},
		{"fixed window from the first charge", aligned(headgate.FromFirst), 0, time.Second, 40, 0.95},
		{"fixed window on the clock", aligned(headgate.OnClock), 0, time.Second, 40, 0.95},
		{"fixed window on the clock, spread", aligned(headgate.OnClockSpread), 0, time.Second, 40, 0.95},
		// Calendar windows have no fixed length: the spans are the shortest ones.
		{"calendar minute", headgate.Quota(20, headgate.Minute, berlin), 0, time.Minute, 40, 0.95},
		{"calendar hour", headgate.Quota(20, headgate.Hour, berlin), 0, time.Hour, 40, 0.95},
		{"calendar day", headgate.Quota(20, headgate.Day, berlin), 0, 23 * time.Hour, 40, 0.95},
		{"calendar week", headgate.Quota(20, headgate.Week, berlin), 0, 7*day - time.Hour, 40, 0.95},
		{"calendar month", headgate.Quota(20, headgate.Month, berlin), 0, 28*day - time.Hour, 40, 0.95},
		{"calendar month from the 31st", anchored, 0, 28*day - time.Hour, 40, 0.95},
	}
}

// TestLateRefundsKeepTheBound refunds receipts late, when their units have leaked although the receipts hardly show it.
func TestLateRefundsKeepTheBound(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	perSecond := headgate.Limit{Count: 1, Window: time.Second, Burst: 10}
	tests := []struct {
		name  string
		limit headgate.Limit
		moves []move
	}{
		{"what was below it was given back", perSecond, []move{
			{charge, 5},
			{charge, 5},
			{refund, 1},
			{wait, 5 * second},
			{charge, 5},
			{refund, 1},
			{chargeAll, 0},
		}},
		{"and the bucket never was empty", perSecond, []move{
			{charge, 5},
			{charge, 5},
			{refund, 1},
			{wait, 4 * second},
			{charge, 9},
			{refund, 1},
			{chargeAll, 0},
		}},
		{"and the bucket was forgotten", perSecond, []move{
			{charge, 5},
			{charge, 5},
			{refund, 1},
			{wait, 5 * second},
			{charge, 1},
			{wait, second},
			{charge, 9},
			{refund, 2},
			{chargeAll, 0},
		}},
		{"so much was given back that its count began again", headgate.PerSecond(1_000_000_000), []move{
			{charge, 1_000_000_000},
			{refund, 0},
			{charge, 1_000_000_000},
			{refund, 0},
			{charge, 1_000_000_000},
			{refund, 0},
			{charge, 1_000_000_000},
			{refund, 0},
			{charge, 510_000_000},
			{charge, 490_000_000},
			{refund, 1},
			{wait, 490_000},
			{chargeAll, 0},
			{refund, 1},
			{chargeAll, 0},
		}},
		{"less than a millionth of a unit was left", headgate.Limit{Count: 7, Window: time.Minute, Burst: 50}, []move{
			{charge, 34},
			{waitReset, 2},
			{chargeAll, 0},
			{refund, 1},
			{wait, 60*second - 2},
			{chargeAll, 0},
		}},
	}
	for _, test := range tests {
		s := scenario{limit: test.limit, bound: capacity(test.limit)}
		if _, err := s.judge(s.play(test.moves, 1_700_000_000*second)); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
