package storewrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// flaky fails in the ways that a store can, as a test says for each call.
type flaky struct {
	headgate.Store
	fails atomic.Pointer[func(charges []headgate.Charge) error] // before it is asked; ErrUnanswered: after
}

func newFlaky() *flaky {
	f := &flaky{Store: memstore.New(memstore.Options{})}
	f.is(func([]headgate.Charge) error { return nil })
	return f
}

func (f *flaky) Shard(s headgate.Subject) int { return int(s[0] % 2) }

func (f *flaky) is(fails func([]headgate.Charge) error) { f.fails.Store(&fails) }

func (f *flaky) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	err := (*f.fails.Load())(charges)
	if err == nil || errors.Is(err, headgate.ErrUnanswered) {
		_ = f.Store.Take(ctx, charges, results)
	}
	if err != nil {
		return failAll(results, err)
	}
	return nil
}

var (
	errGone = fmt.Errorf("%w: gone", headgate.ErrUnavailable)
	errLost = fmt.Errorf("%w: %w: lost", headgate.ErrUnavailable, headgate.ErrUnanswered)
)

// used is what the store itself has counted.
func used(t *testing.T, store headgate.Store, c headgate.Charge) int64 {
	t.Helper()
	c.Cost, c.Force = 0, false
	r, err := take(store, c)
	if err != nil {
		t.Fatal(err)
	}
	return c.Limit.Capacity() - r[0].Remaining
}

func hour(a headgate.Algorithm, n int64) headgate.Charge {
	limit := headgate.Limit{Algorithm: a, Count: n, Window: time.Hour}
	return headgate.Charge{Subject: headgate.SubjectOf("ann"), Counter: headgate.CounterOf("r", "", a), Limit: limit, Cost: 1, Strict: true}
}

// settled waits until the store is used again and nothing is owed.
func settled(t *testing.T, stores ...*Store) {
	t.Helper()
	eventually(t, "settled", func() bool {
		for _, s := range stores {
			if stats := s.Stats(); stats.ShardsUnavailable > 0 || stats.PendingCounters > 0 {
				return false
			}
		}
		return true
	})
}

// When the store is back it counts what all nodes have admitted, to the unit, whatever the limit counts by.
func TestReconcile(t *testing.T) {
	t.Parallel()
	for _, a := range []headgate.Algorithm{headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			const limit, nodes = 900, 3
			inner := newFlaky()
			c := hour(a, limit)
			stores := make([]*Store, nodes)
			for i := range stores {
				stores[i] = wrap(t, inner, Options{Nodes: nodes})
				for range 20 {
					if r, err := take(stores[i], c); err != nil || r[0].Path == headgate.PathLocal {
						t.Fatalf("%+v: %v", r, err)
					}
				}
			}
			inner.is(func([]headgate.Charge) error { return errGone })
			var admitted int64 = 20 * nodes
			for _, s := range stores {
				for range limit {
					r, err := take(s, c)
					if err != nil || r[0].Path != headgate.PathLocal {
						t.Fatalf("%+v: %v", r, err)
					}
					admitted += r[0].Granted
				}
				if stats := s.Stats(); stats.PendingCounters != 1 || stats.ShardsUnavailable != 1 {
					t.Errorf("%+v", stats)
				}
			}
			// Of the three only the last knew how much was left.
			if admitted < limit-nodes || admitted > limit+40 {
				t.Errorf("%d admitted of %d", admitted, limit)
			}
			inner.is(func([]headgate.Charge) error { return nil })
			settled(t, stores...)
			got := used(t, inner, c)
			if want := min(admitted, limit); got < want-nodes || got > want+nodes || a != headgate.TokenBucket && got != want {
				t.Errorf("the store counts %d of %d admitted", got, admitted)
			}
			var charged int64
			for _, s := range stores {
				charged += s.Stats().Charged
			}
			if want := admitted - 20*nodes; charged < want-nodes || charged > want+nodes {
				t.Errorf("%d units were charged of %d", charged, want)
			}
		})
	}
}

// What was not answered may have been charged, and is not charged again.
func TestUnansweredIsNotReconciled(t *testing.T) {
	t.Parallel()
	inner := newFlaky()
	s := wrap(t, inner, Options{})
	c := hour(headgate.FixedWindow, 1_000)
	inner.is(func([]headgate.Charge) error { return errLost })
	for range 3 {
		if r, err := take(s, c); err != nil || r[0].Path != headgate.PathLocal || r[0].Granted != 1 {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	inner.is(func([]headgate.Charge) error { return nil })
	if stats := s.Stats(); stats.Unanswered != 3 || stats.PendingCounters != 0 || used(t, inner, c) != 3 {
		t.Errorf("%+v, %d used", stats, used(t, inner, c))
	}

	// What only looks, as Peek does, is not recorded and not missed.
	veto := hour(headgate.FixedWindow, 1)
	veto.Counter, veto.Cost = headgate.CounterOf("", "veto", headgate.FixedWindow), headgate.MaxCost
	inner.is(func([]headgate.Charge) error { return errLost })
	_, _ = take(s, c, veto)
	inner.is(func([]headgate.Charge) error { return nil })
	if stats := s.Stats(); stats.Unanswered != 3 || used(t, inner, c) != 3 {
		t.Errorf("after looking: %d unanswered, %d used", stats.Unanswered, used(t, inner, c))
	}
}

// A batch that was not answered is not sent again either, and one that certainly was not taken is.
func TestBatchesAreChargedOnce(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int64{errGone: 10, errLost: 10} {
		inner := newFlaky()
		s := wrap(t, inner, Options{})
		c := hour(headgate.FixedWindow, 1_000)
		inner.is(func([]headgate.Charge) error { return errGone })
		for range 10 {
			if r, err := take(s, c); err != nil || !r[0].Allowed {
				t.Fatalf("%+v: %v", r, err)
			}
		}
		var batches atomic.Int64
		inner.is(func(charges []headgate.Charge) error {
			if charges[0].Force && batches.Add(1) <= 1 {
				return err
			}
			return nil
		})
		settled(t, s)
		if got := used(t, inner, c); got != want {
			t.Errorf("%v: %d used", err, got)
		}
	}
}

// A failure now and then does not wait for an outage to be put right.
func TestSettlesWithoutAnOutage(t *testing.T) {
	t.Parallel()
	inner := newFlaky()
	s := wrap(t, inner, Options{})
	c := hour(headgate.FixedWindow, 1_000)
	var calls atomic.Int64
	inner.is(func(charges []headgate.Charge) error {
		if !charges[0].Force && calls.Add(1)%3 == 0 {
			return errGone
		}
		return nil
	})
	for range 300 {
		if r, err := take(s, c); err != nil || !r[0].Allowed {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	settled(t, s)
	inner.is(func([]headgate.Charge) error { return nil })
	if got := used(t, inner, c); got != 300 {
		t.Errorf("%d used", got)
	}
}

// What a rule lets pass while the store is away counts afterwards, and so do commits; what is denied does not.
func TestOthersAreReconciled(t *testing.T) {
	t.Parallel()
	inner := newFlaky()
	s := wrap(t, inner, Options{})
	lets, forced, denies := hour(headgate.FixedWindow, 1_000), hour(headgate.FixedWindow, 1_000), hour(headgate.FixedWindow, 1_000)
	lets.Subject, lets.OnStoreFailure = headgate.SubjectOf("lets"), headgate.FailAllow
	forced.Subject, forced.Force, forced.Cost = headgate.SubjectOf("forced"), true, 7
	denies.Subject, denies.OnStoreFailure = headgate.SubjectOf("denies"), headgate.FailDeny
	share := hour(headgate.FixedWindow, 1_000)
	inner.is(func([]headgate.Charge) error { return errGone })
	for range 20 {
		if r, err := take(s, lets); err == nil || r[0].Err == nil {
			t.Fatalf("%+v: %v", r, err)
		}
		if _, err := take(s, lets, denies, share); err == nil {
			t.Fatal("nobody said that the store is away")
		}
	}
	if r, err := take(s, forced); err != nil || r[0].Granted != 7 || r[0].Path != headgate.PathLocal {
		t.Errorf("%+v: %v", r, err)
	}
	inner.is(func([]headgate.Charge) error { return nil })
	settled(t, s)
	if a, b, c, d := used(t, inner, lets), used(t, inner, forced), used(t, inner, denies), used(t, inner, share); a != 20 || b != 7 || c != 0 || d != 0 {
		t.Errorf("%d, %d, %d and %d used", a, b, c, d)
	}
}

// What the store is being charged counts until it says more: a node does not have its share again because the store, which is slow,
// has not heard of it yet.
func TestChargesInFlightCount(t *testing.T) {
	t.Parallel()
	inLab(t, Options{}, func(l *lab) {
		const limit = 100
		var gone atomic.Bool
		l.fail(func(charges []headgate.Charge) error {
			if slices.ContainsFunc(charges, func(c headgate.Charge) bool { return c.Force }) {
				time.Sleep(500 * time.Millisecond)
				return nil
			}
			if gone.Load() && charges[0].Cost > 0 {
				return errGone
			}
			return nil
		})
		c := hour(headgate.FixedWindow, limit)
		var admitted int64
		ask := func(fails bool, cost int64) {
			gone.Store(fails)
			c.Cost = cost
			admitted += l.ask(c)[0].Granted
		}
		ask(false, 1)
		ask(true, 50)
		time.Sleep(80 * time.Millisecond) // the store is being charged
		ask(false, 1)
		ask(true, 90)
		time.Sleep(600 * time.Millisecond) // it has been, and is again
		ask(false, 1)
		ask(true, 40)
		ask(false, 40)
		time.Sleep(5 * time.Second)
		if admitted > 2*limit {
			l.Errorf("%d admitted of %d", admitted, limit)
		}
	})
}

// A part that cannot be charged keeps no other from coming back.
func TestPartsReturnAlone(t *testing.T) {
	t.Parallel()
	inner := newFlaky()
	s := wrap(t, inner, Options{})
	away, stumbles := hour(headgate.FixedWindow, 1_000), hour(headgate.FixedWindow, 1_000)
	away.Subject, stumbles.Subject = chargeOn(0).Subject, chargeOn(1).Subject
	inner.is(func([]headgate.Charge) error { return errGone })
	for range 10 {
		_, _ = take(s, away)
	}
	_, _ = take(s, stumbles)
	if stats := s.Stats(); stats.ShardsUnavailable != 1 || stats.PendingCounters != 2 {
		t.Fatalf("%+v", stats)
	}
	inner.is(func(charges []headgate.Charge) error {
		if charges[len(charges)-1].Force && charges[0].Subject == stumbles.Subject {
			return errGone
		}
		return nil
	})
	eventually(t, "back", func() bool { return s.Stats().ShardsUnavailable == 0 })
	if got := used(t, inner, away); got != 10 || s.Stats().PendingCounters != 1 {
		t.Errorf("%d used, %+v", got, s.Stats())
	}
	inner.is(func([]headgate.Charge) error { return nil })
	settled(t, s)
	if got := used(t, inner, stumbles); got != 1 {
		t.Errorf("%d used of the other", got)
	}
}

// A server that stops hands over what it owes.
func TestCloseSettles(t *testing.T) {
	t.Parallel()
	inner := newFlaky()
	s := wrap(t, inner, Options{})
	c := hour(headgate.FixedWindow, 1_000)
	inner.is(func([]headgate.Charge) error { return errGone })
	_, _ = take(s, c)
	inner.is(func([]headgate.Charge) error { return nil })
	s.Close()
	s.Close()
	if got := used(t, inner, c); got != 1 {
		t.Errorf("%d used", got)
	}
}

// A node remembers a bounded number of counters, and forgets those first that mean nothing any more.
func TestLedgerIsBounded(t *testing.T) {
	t.Parallel()
	inner := newFlaky()
	s := wrap(t, inner, Options{})
	const most = 3_000
	s.fallback.ledger.max = most
	inner.is(func([]headgate.Charge) error { return errGone })
	c := hour(headgate.FixedWindow, 1_000)
	for i := range most + 1_000 {
		c.Subject = headgate.SubjectOf(strconv.Itoa(i))
		if r, err := take(s, c); err != nil || !r[0].Allowed {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	s.fallback.ledger.mu.Lock()
	n, indexed, owing := len(s.fallback.ledger.tallies), len(s.fallback.ledger.index), s.fallback.ledger.owing
	s.fallback.ledger.mu.Unlock()
	if n != most || indexed != n || owing != n {
		t.Errorf("%d tallies, %d indexed, %d owing", n, indexed, owing)
	}
	inner.is(func([]headgate.Charge) error { return nil })
	settled(t, s)
	eventually(t, "empty", func() bool {
		s.fallback.ledger.mu.Lock()
		defer s.fallback.ledger.mu.Unlock()
		return s.fallback.ledger.tallies == nil
	})
	if charged := s.Stats().Charged; charged != most {
		t.Errorf("%d units were charged", charged)
	}
}

// A node's count goes on in the window that the store was in.
func TestSeedKeepsTheWindow(t *testing.T) {
	t.Parallel()
	for _, a := range []headgate.Algorithm{headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog} {
		for _, late := range []time.Duration{0, 40 * time.Minute, 80 * time.Minute} {
			var offset atomic.Int64
			inner := newFlaky()
			inner.Store = memstore.New(memstore.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }})
			s := wrap(t, inner, Options{})
			c := hour(a, 1_000)
			c.Cost = 100
			offset.Store(int64(-late))
			_, _ = take(s, c)
			offset.Store(0)
			c.Cost = 0
			want, err := take(s, c)
			inner.is(func([]headgate.Charge) error { return errGone })
			got, err2 := take(s, c)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			off := got[0].ResetAfter - want[0].ResetAfter
			if off.Abs() > time.Second || got[0].Remaining < want[0].Remaining-1 || got[0].Remaining > want[0].Remaining+1 {
				t.Errorf("%v, %v later: %+v, and not %+v", a, late, got[0], want[0])
			}
		}
	}
}
