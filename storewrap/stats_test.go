package storewrap

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Leased units are spent and returned, after recovery if the store is unavailable when the lease ends. Units whose return is
// not answered are lost.
func TestStatsOfLeases(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails  error
		lost   bool
		during int64 // returned while it fails
	}{"available": {}, "unavailable": {fails: errGone}, "unanswered": {fails: errLost, lost: true}} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(headgate.FixedWindow, 10_000)
			admitted := l.lease(c)
			stats, held := l.node.Stats(), l.held(c)
			if stats.Leases != 1 || stats.Leased < held || stats.Returned+stats.LeaseLost != 0 {
				l.Errorf("%s: %d held: %+v", name, held, stats)
			}
			l.fail(func([]headgate.Charge) error { return test.fails })
			time.Sleep(2 * maxTerm)
			if got := l.node.Stats(); test.fails != nil && got.Returned != 0 {
				l.Errorf("%s: %+v", name, got)
			}
			l.fail(func([]headgate.Charge) error { return nil })
			time.Sleep(time.Second)
			got, want := l.node.Stats(), [2]int64{held, 0}
			if test.lost {
				want = [2]int64{0, held}
			}
			if got.Leases != 0 || [2]int64{got.Returned, got.LeaseLost} != want || used(l.T, l.inner, c) != admitted {
				l.Errorf("%s, %d were held: %+v, %d used of %d", name, held, got, used(l.T, l.inner, c), admitted)
			}
		})
	}
}

// A cached denial is false if units are given back earlier than the limit refills them, and only then.
func TestStatsOfFalseDenials(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		credited int64 // units that another client gives back
		want     int64
	}{{0, 0}, {2, 2}, {100, 3}} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(headgate.SlidingLog, 100)
			l.exhaust(c)
			if test.credited > 0 {
				credited := c
				credited.Cost, credited.Credit = test.credited, true
				if _, err := take(l.inner, credited); err != nil {
					l.Fatal(err)
				}
			}
			for range 3 {
				if r := l.take(c)[0]; r.Path != headgate.PathCache {
					l.Fatalf("%+v", r)
				}
			}
			time.Sleep(maxTrust)
			if r := l.take(c)[0]; r.Allowed != (test.credited > 0) || l.node.Stats().FalseDenials != test.want {
				l.Errorf("%d given back: %+v", test.credited, l.node.Stats())
			}
		})
	}
	inLab(t, Options{}, func(l *lab) {
		c := hour(headgate.FixedWindow, 100)
		c.Limit.Window, c.Strict = 400*time.Millisecond, false
		l.exhaust(c)
		l.take(c)
		time.Sleep(c.Limit.Window)
		if r := l.take(c)[0]; !r.Allowed || l.node.Stats().FalseDenials != 0 {
			l.Errorf("in a new window: %+v, %+v", r, l.node.Stats())
		}
	})
}

// An error is counted once per decision, by its reason. OverLimit counts the reconciled units that were over the limit.
func TestStatsOfAnOutage(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		c := yearly(headgate.FixedWindow, 100)
		other := c
		other.Counter++
		l.fail(func([]headgate.Charge) error { return errLate })
		l.take(c)
		l.fail(func([]headgate.Charge) error { return errGone })
		for range 9 {
			l.take(c, other)
		}
		stats := l.node.Stats()
		if e := stats.Errors; e.Unanswered != 1 || e.Unavailable < minFailures-1 || e.CircuitOpen == 0 ||
			e.Unanswered+e.Unavailable+e.CircuitOpen+e.Rejected != 10 || stats.CircuitOpened != 1 {
			l.Errorf("%+v", stats)
		}
		// Other nodes take all but four.
		l.fail(func([]headgate.Charge) error { return nil })
		all := c
		all.Cost, all.Force = 96-used(l.T, l.inner, c), true
		if _, err := take(l.inner, all); err != nil {
			l.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got := l.node.Stats(); got.PendingCounters != 0 || got.Charged != 9+9 || got.OverLimit != 9-4 || got.CircuitOpened != 1 {
			l.Errorf("%+v", got)
		}
	})
}

// Options.Observe receives the calls that decisions wait for, and no others.
func TestObserve(t *testing.T) {
	t.Parallel()
	var observed atomic.Int64
	o := Options{Observe: func(elapsed time.Duration) { observed.Add(1 + min(0, int64(elapsed))) }}
	inLab(t, o, func(l *lab) {
		c := yearly(headgate.FixedWindow, 10_000)
		l.lease(c)
		before := observed.Load()
		if calls := l.calls.Load() - l.agent.Load(); before == 0 || before != calls {
			l.Errorf("%d of %d calls were observed", before, calls)
		}
		l.take(c)
		time.Sleep(2 * maxTerm) // until the rest is returned
		if observed.Load() != before {
			l.Error("a decision by a lease, or a return, was observed")
		}
	})
}

// Evictions of entries that are still of use are counted.
func TestStatsOfEvictions(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		first := yearly(headgate.SlidingLog, 1)
		l.exhaust(first)
		others := 0
		for i := 0; others < ways; i++ {
			c := first
			c.Subject = headgate.SubjectOf(strconv.Itoa(i))
			if sameSet(l.node, &first, &c) {
				others++
				l.exhaust(c)
			}
		}
		if got := l.node.Stats().CacheEvicted; got != 1 {
			l.Errorf("%d denials were evicted", got)
		}
	})
	l := ledger{max: 2}
	now := time.Now()
	for i, c := range []headgate.Charge{hour(headgate.FixedWindow, 1), hour(headgate.FixedWindow, 1), hour(headgate.FixedWindow, 1)} {
		c.Counter += headgate.Counter(i)
		tally, _ := l.getOrCreate(&c, now)
		tally.counted.Expires = now.Unix() + 60
	}
	if got := l.evicted.Load(); got != 1 {
		t.Errorf("%d local counters were evicted", got)
	}
}
