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

// flaky is a store whose calls fail as the test decides.
type flaky struct {
	headgate.Store
	fails atomic.Pointer[func(charges []headgate.Charge) error] // ErrUnanswered fails after the inner Take, other errors before it
	delay atomic.Pointer[func(charges []headgate.Charge)]       // of the reply, if not nil
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
	if delay := f.delay.Load(); delay != nil {
		(*delay)(charges)
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

// used returns how many units the store itself has counted.
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

// settled waits until the store is available and nothing is pending.
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

// After recovery the store counts what all nodes have admitted, to the unit, for each algorithm.
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
			// Only the last of the three knew how much was left.
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

// Charges that were not answered may have been recorded, and are not charged again.
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

	// A peek is not recorded, and is not counted as unanswered.
	veto := hour(headgate.FixedWindow, 1)
	veto.Counter, veto.Cost = headgate.CounterOf("", "veto", headgate.FixedWindow), headgate.MaxCost
	inner.is(func([]headgate.Charge) error { return errLost })
	_, _ = take(s, c, veto)
	inner.is(func([]headgate.Charge) error { return nil })
	if stats := s.Stats(); stats.Unanswered != 3 || used(t, inner, c) != 3 {
		t.Errorf("after a peek: %d unanswered, %d used", stats.Unanswered, used(t, inner, c))
	}
}

// A batch that was not answered is not sent again. One that certainly was not recorded is.
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

// Occasional failures are reconciled without waiting for an outage.
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

// What a rule allows while the store is unavailable is charged afterwards, and so are forced charges; what is denied is not.
func TestForcedAndFailOpenChargesAreReconciled(t *testing.T) {
	t.Parallel()
	inner := newFlaky()
	s := wrap(t, inner, Options{})
	allows, forced, denies := hour(headgate.FixedWindow, 1_000), hour(headgate.FixedWindow, 1_000), hour(headgate.FixedWindow, 1_000)
	allows.Subject, allows.OnStoreFailure = headgate.SubjectOf("lets"), headgate.FailAllow
	forced.Subject, forced.Force, forced.Cost = headgate.SubjectOf("forced"), true, 7
	denies.Subject, denies.OnStoreFailure = headgate.SubjectOf("denies"), headgate.FailDeny
	share := hour(headgate.FixedWindow, 1_000)
	inner.is(func([]headgate.Charge) error { return errGone })
	for range 20 {
		if r, err := take(s, allows); err == nil || r[0].Err == nil {
			t.Fatalf("%+v: %v", r, err)
		}
		if _, err := take(s, allows, denies, share); err == nil {
			t.Fatal("no error although the store is unavailable")
		}
	}
	if r, err := take(s, forced); err != nil || r[0].Granted != 7 || r[0].Path != headgate.PathLocal {
		t.Errorf("%+v: %v", r, err)
	}
	inner.is(func([]headgate.Charge) error { return nil })
	settled(t, s)
	if a, b, c, d := used(t, inner, allows), used(t, inner, forced), used(t, inner, denies), used(t, inner, share); a != 20 || b != 7 || c != 0 || d != 0 {
		t.Errorf("%d, %d, %d and %d used", a, b, c, d)
	}
}

// Charges in flight count until the store reports its state again: a node does not admit its share again because a slow store
// has not counted them yet.
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
		take := func(fails bool, cost int64) {
			gone.Store(fails)
			c.Cost = cost
			admitted += l.take(c)[0].Granted
		}
		take(false, 1)
		take(true, 50)
		time.Sleep(80 * time.Millisecond) // the store is being charged
		take(false, 1)
		take(true, 90)
		time.Sleep(600 * time.Millisecond) // it has been charged, and is being charged again
		take(false, 1)
		take(true, 40)
		take(false, 40)
		time.Sleep(5 * time.Second)
		if admitted > 2*limit {
			l.Errorf("%d admitted of %d", admitted, limit)
		}
	})
}

// A shard that cannot be charged does not keep another from recovering.
func TestShardsRecoverIndependently(t *testing.T) {
	t.Parallel()
	inner := newFlaky()
	s := wrap(t, inner, Options{})
	down, flapping := hour(headgate.FixedWindow, 1_000), hour(headgate.FixedWindow, 1_000)
	down.Subject, flapping.Subject = chargeOn(0).Subject, chargeOn(1).Subject
	inner.is(func([]headgate.Charge) error { return errGone })
	for range 10 {
		_, _ = take(s, down)
	}
	_, _ = take(s, flapping)
	if stats := s.Stats(); stats.ShardsUnavailable != 1 || stats.PendingCounters != 2 {
		t.Fatalf("%+v", stats)
	}
	inner.is(func(charges []headgate.Charge) error {
		if charges[len(charges)-1].Force && charges[0].Subject == flapping.Subject {
			return errGone
		}
		return nil
	})
	eventually(t, "back", func() bool { return s.Stats().ShardsUnavailable == 0 })
	if got := used(t, inner, down); got != 10 || s.Stats().PendingCounters != 1 {
		t.Errorf("%d used, %+v", got, s.Stats())
	}
	inner.is(func([]headgate.Charge) error { return nil })
	settled(t, s)
	if got := used(t, inner, flapping); got != 1 {
		t.Errorf("%d used of the other", got)
	}
}

// Close charges what is pending.
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

// The ledger keeps a bounded number of counters, and evicts expired ones first.
func TestLedgerIsBounded(t *testing.T) {
	t.Parallel()
	inner := newFlaky()
	s := wrap(t, inner, Options{})
	const tallyLimit = 3_000
	s.fallback.ledger.max = tallyLimit
	inner.is(func([]headgate.Charge) error { return errGone })
	c := hour(headgate.FixedWindow, 1_000)
	for i := range tallyLimit + 1_000 {
		c.Subject = headgate.SubjectOf(strconv.Itoa(i))
		if r, err := take(s, c); err != nil || !r[0].Allowed {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	s.fallback.ledger.mu.Lock()
	n, indexed, owing := len(s.fallback.ledger.tallies), len(s.fallback.ledger.index), s.fallback.ledger.owing
	s.fallback.ledger.mu.Unlock()
	if n != tallyLimit || indexed != n || owing != n {
		t.Errorf("%d tallies, %d indexed, %d owing", n, indexed, owing)
	}
	inner.is(func([]headgate.Charge) error { return nil })
	settled(t, s)
	eventually(t, "empty", func() bool {
		s.fallback.ledger.mu.Lock()
		defer s.fallback.ledger.mu.Unlock()
		return s.fallback.ledger.tallies == nil
	})
	if charged := s.Stats().Charged; charged != tallyLimit {
		t.Errorf("%d units were charged", charged)
	}
}

// A node's count continues in the window that the store was in.
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
				t.Errorf("%v, %v later: %+v, want %+v", a, late, got[0], want[0])
			}
		}
	}
}
