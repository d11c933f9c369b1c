package storewrap

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// commonLimits returns forty limits as rules commonly have them.
func commonLimits() (limits []headgate.Limit) {
	for _, window := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour} {
		for _, count := range []int64{5, 50, 100, 1_000, 1_000_000} {
			limits = append(limits, headgate.Per(count, window))
		}
	}
	berlin, _ := time.LoadLocation("Europe/Berlin")
	return append(limits,
		headgate.Limit{Count: 1_000, Window: time.Minute, Burst: 20},
		headgate.Limit{Count: 10, Window: time.Minute, Burst: 600},
		headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 10, Window: time.Second},
		headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 7, Window: 24 * time.Hour},
		headgate.Limit{Algorithm: headgate.FixedWindow, Count: 100, Window: time.Minute},
		headgate.Limit{Algorithm: headgate.FixedWindow, Count: 3, Window: time.Hour, Align: headgate.OnClock},
		headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 1_003, Window: time.Minute},
		headgate.Limit{Algorithm: headgate.SlidingLog, Count: 30, Window: time.Minute},
		headgate.Quota(10, headgate.Day, nil),
		headgate.Quota(100_000, headgate.Month, berlin),
	)
}

// perWindow returns the rate of a share in units per window of the whole limit, and its capacity.
func perWindow(whole, share *headgate.Limit) (rate float64, burst int64) {
	rate = float64(share.Count)
	if share.Calendar == headgate.NoCalendar {
		rate *= float64(whole.Window) / float64(share.Window)
	}
	return rate, share.Capacity()
}

// Every share is a valid limit, and the shares of all nodes add up to the limit: its rate and its capacity.
func TestSharesAddUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	now := time.Unix(1_700_000_000, 0)
	limits := commonLimits()
	if len(limits) != 40 {
		t.Fatalf("%d limits", len(limits))
	}
	for nodes := int64(1); nodes <= 64; nodes++ {
		for percent := int64(1); percent <= 100; percent++ {
			for i := range limits {
				whole := &limits[i]
				c := headgate.Charge{Subject: headgate.SubjectOf("x"), Counter: 1, Limit: *whole}
				var rate float64
				var burst int64
				for rank := int64(1); rank <= nodes; rank++ {
					s := share{nodes: nodes, rank: rank, percent: percent}
					local, wait, ok := s.scale(&c, now)
					if err := local.Validate(); err != nil || ok == (wait > 0) || wait < 0 {
						t.Fatalf("%v, node %d of %d, %d %%: %v, wait %v: %v", whole, rank, nodes, percent, local, wait, err)
					}
					if !ok {
						continue
					}
					r, b := perWindow(whole, &local)
					rate, burst = rate+r, burst+b
				}
				s := share{nodes: 1, rank: 1, percent: percent}
				want := s.portion(&c, 0, whole.Capacity())
				checkSum(t, whole, nodes, percent, rate, burst, want)
			}
		}
	}
}

func checkSum(t *testing.T, whole *headgate.Limit, nodes, percent int64, rate float64, burst, want int64) {
	t.Helper()
	exact := float64(whole.Count) * float64(percent) / 100
	off := max(1, 1e-3*exact) // the fraction of a unit that percent leaves rotates by window
	if percent == 100 && isBucket(whole) {
		off = 1e-3 * exact
	} else if percent == 100 {
		off = 1e-9 * exact
	}
	if whole.Algorithm == headgate.TokenBucket { // rotates by the time in which the burst refills
		off = max(off, float64(whole.Count)/float64(whole.Capacity()))
	}
	if rate < exact-off || rate > exact+off {
		t.Fatalf("%v, %d nodes, %d %%: a rate of %v, want %v", whole, nodes, percent, rate, exact)
	}
	if whole.Algorithm != headgate.LeakyBucket && (burst < want-1 || burst > want+1 || percent == 100 && burst != want) {
		t.Fatalf("%v, %d nodes, %d %%: %d at once, want %d", whole, nodes, percent, burst, want)
	}
}

// The nodes without units change from window to window, and nodes that do not know their rank have the limit on average.
func TestRemainderRotates(t *testing.T) {
	t.Parallel()
	const nodes, windows = 20, 300
	for _, limit := range []headgate.Limit{
		{Algorithm: headgate.FixedWindow, Count: 5, Window: time.Minute},
		{Algorithm: headgate.SlidingLog, Count: 30, Window: time.Minute},
		headgate.PerMinute(5),
		headgate.Quota(10, headgate.Day, nil),
	} {
		c := headgate.Charge{Subject: headgate.SubjectOf("x"), Limit: limit}
		for _, ranked := range []bool{true, false} {
			had := map[int]bool{}
			var sum float64
			for w := range windows {
				var all float64
				for node := range nodes {
					s := share{salt: uint64(node)*7919 + 1, nodes: nodes, percent: 100}
					if ranked {
						s.rank = int64(node) + 1
					}
					if local, _, ok := s.scale(&c, time.Unix(1_700_000_000, 0).Add(time.Duration(w)*24*time.Hour)); ok {
						had[node] = true
						rate, _ := perWindow(&limit, &local)
						all += rate
					}
				}
				if ranked && all != float64(limit.Count) {
					t.Fatalf("%v: %v in window %d", limit, all, w)
				}
				sum += all
			}
			if mean, want := sum/windows, float64(limit.Count); mean < 0.93*want || mean > 1.07*want || len(had) != nodes {
				t.Errorf("%v, ranked %v: %v in all, %d nodes ever had something", limit, ranked, mean, len(had))
			}
		}
	}
}

// Busy nodes admit no more than the limit in any of its windows, even if it does not divide evenly.
func TestSharesHoldInEveryWindow(t *testing.T) {
	t.Parallel()
	const nodes, window = 8, 2 * time.Second
	begin := time.Unix(1_700_000_000, 700_000_000)
	for _, count := range []int64{8, 12, 15, 100} {
		for _, limit := range []headgate.Limit{
			{Algorithm: headgate.FixedWindow, Count: count, Window: window},
			{Algorithm: headgate.FixedWindow, Count: count, Window: window, Align: headgate.OnClock},
			{Algorithm: headgate.SlidingLog, Count: count, Window: window},
		} {
			admitted := map[int64]int64{}
			for rank := int64(1); rank <= nodes; rank++ {
				s := share{nodes: nodes, rank: rank, percent: 100}
				c := headgate.Charge{Subject: headgate.SubjectOf("x"), Counter: 1, Limit: limit, Cost: 1}
				var state headgate.State
				for at := begin; at.Before(begin.Add(20 * window)); at = at.Add(20 * time.Millisecond) {
					local, _, ok := s.scale(&c, at)
					if !ok {
						continue
					}
					var r headgate.Result
					if state, r = local.Take(state, c, at); r.Granted > 0 {
						of := at.Sub(begin) / window
						if limit.Align == headgate.OnClock {
							of = time.Duration(at.UnixMicro()) / (window / time.Microsecond)
						}
						admitted[int64(of)]++
					}
				}
			}
			for of, n := range admitted {
				if n > count {
					t.Errorf("%v on %d nodes: %d admitted in window %d", limit, nodes, n, of)
				}
			}
		}
	}
}
