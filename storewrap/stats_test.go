package storewrap

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Units of leases are taken, spent, and given back; or lost, if the store is away then.
func TestStatsOfLeases(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(headgate.FixedWindow, 10_000)
			admitted := l.lease(c)
			stats, held := l.node.Stats(), l.held(c)
			if stats.Leases != 1 || stats.Leased < held || stats.Returned+stats.LeaseLost != 0 {
				l.Errorf("%d held: %+v", held, stats)
			}
			if away {
				l.fail(func([]headgate.Charge) error { return errGone })
			}
			time.Sleep(2 * term)
			got, want := l.node.Stats(), [2]int64{held, 0}
			if away {
				want = [2]int64{0, held}
			}
			if got.Leases != 0 || [2]int64{got.Returned, got.LeaseLost} != want || !away && used(l.T, l.inner, c) != admitted {
				l.Errorf("away %t, %d were held: %+v", away, held, got)
			}
		})
	}
}

// A refusal that was believed is mistaken if units come back before they would by themselves, and only then.
func TestStatsOfMistakes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		back int64 // units that somebody gives back meanwhile
		want int64
	}{{0, 0}, {2, 2}, {100, 3}} {
		inLab(t, Options{}, func(l *lab) {
			c := yearly(headgate.SlidingLog, 100)
			l.exhaust(c)
			if test.back > 0 {
				back := c
				back.Cost, back.Credit = test.back, true
				if _, err := take(l.inner, back); err != nil {
					l.Fatal(err)
				}
			}
			for range 3 {
				if r := l.ask(c)[0]; r.Path != headgate.PathCache {
					l.Fatalf("%+v", r)
				}
			}
			time.Sleep(maxDenial)
			if r := l.ask(c)[0]; r.Allowed != (test.back > 0) || l.node.Stats().Mistaken != test.want {
				l.Errorf("%d given back: %+v", test.back, l.node.Stats())
			}
		})
	}
	inLab(t, Options{}, func(l *lab) {
		c := hour(headgate.FixedWindow, 100)
		c.Limit.Window, c.Strict = 400*time.Millisecond, false
		l.exhaust(c)
		l.ask(c)
		time.Sleep(c.Limit.Window)
		if r := l.ask(c)[0]; !r.Allowed || l.node.Stats().Mistaken != 0 {
			l.Errorf("in a new window: %+v, %+v", r, l.node.Stats())
		}
	})
}

// Why the store did not answer is counted once for a decision; and of what is charged afterwards, what there was no room for.
func TestStatsOfAnOutage(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		c := yearly(headgate.FixedWindow, 100)
		other := c
		other.Counter++
		l.fail(func([]headgate.Charge) error { return errLate })
		l.ask(c)
		l.fail(func([]headgate.Charge) error { return errGone })
		for range 9 {
			l.ask(c, other)
		}
		stats := l.node.Stats()
		if e := stats.Errors; e.Unanswered != 1 || e.Unavailable < enoughFailures-1 || e.Away == 0 ||
			e.Unanswered+e.Unavailable+e.Away+e.Busy != 10 || stats.Opened != 1 {
			l.Errorf("%+v", stats)
		}
		// Meanwhile others take all but four.
		l.fail(func([]headgate.Charge) error { return nil })
		all := c
		all.Cost, all.Force = 96-used(l.T, l.inner, c), true
		if _, err := take(l.inner, all); err != nil {
			l.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got := l.node.Stats(); got.Waiting != 0 || got.Charged != 9+9 || got.Beyond != 9-4 || got.Opened != 1 {
			l.Errorf("%+v", got)
		}
	})
}

// Whoever observes is told of the calls that decisions wait for, and of no others.
func TestObserve(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	o := Options{Observe: func(took time.Duration) { told.Add(1 + min(0, int64(took))) }}
	inLab(t, o, func(l *lab) {
		c := yearly(headgate.FixedWindow, 10_000)
		l.lease(c)
		asked := told.Load()
		if asked == 0 || asked != l.calls.Load() {
			l.Errorf("%d of %d calls were told of", asked, l.calls.Load())
		}
		l.ask(c)
		time.Sleep(2 * term) // the rest goes back
		if told.Load() != asked {
			l.Error("a decision by lease, or what is given back, was told of")
		}
	})
}

// What was of use and is forgotten is counted.
func TestStatsOfWhatIsForgotten(t *testing.T) {
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
		if got := l.node.Stats().ForgottenKnown; got != 1 {
			l.Errorf("%d refusals were forgotten", got)
		}
	})
	books := ledger{most: 2}
	now := time.Now()
	for i, c := range []headgate.Charge{hour(headgate.FixedWindow, 1), hour(headgate.FixedWindow, 1), hour(headgate.FixedWindow, 1)} {
		c.Counter += headgate.Counter(i)
		tally, _ := books.find(&c, now)
		tally.here.Expires = now.Unix() + 60
	}
	if got := books.forgotten.Load(); got != 1 {
		t.Errorf("%d local counters were forgotten", got)
	}
}
