package region

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// plainStore is a store in memory without nodes.
type plainStore struct {
	simStore
	memory *memstore.Store
}

func (s plainStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	return s.memory.Take(ctx, charges, results)
}

// newPlain returns the store of one of three regions with equal weights, without links to the others.
func newPlain(t *testing.T) *Store {
	t.Helper()
	at := time.Unix(1_800_000_000, 0)
	memory := memstore.New(memstore.Options{MaxEntries: 100, Clock: func() time.Time { return at }})
	s := New(plainStore{memory: memory}, NewShares([]Member{{"ap", 1}, {"eu", 1}, {"us", 1}}, "eu"), nil)
	t.Cleanup(s.Close)
	return s
}

// TestUsage reads a counter that was used and lent, and gives units of it back.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, whole := range []headgate.Limit{
		{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 300, Window: time.Hour},
		{Algorithm: headgate.SlidingWindow, Align: headgate.OnClock, Count: 300, Window: time.Hour},
		{Count: 300, Window: 100 * time.Hour},
	} {
		s := newPlain(t)
		ref := CounterRef{headgate.SubjectOf("ann"), headgate.CounterOf("all", "", whole.Algorithm), whole}
		check := func(what string, used, lent int64) {
			t.Helper()
			u, err := s.Usage(t.Context(), ref)
			if err != nil || u.Capacity < 99 || u.Capacity > 100 || u.Used() != used || u.Lent != lent || u.Time.IsZero() {
				t.Errorf("%s, %s: %+v, used %d, want %d and %d lent: %v", whole, what, u, u.Used(), used, lent, err)
			}
		}
		check("unused", 0, 0)
		c := s.chargeOf(&ref)
		c.Cost = 20
		if err := s.Take(t.Context(), []headgate.Charge{c}, make([]headgate.Result, 1)); err != nil {
			t.Fatal(err)
		}
		window, _ := windowOf(&c, time.Unix(1_800_000_000, 0))
		loan := s.Lend(t.Context(), LoanRequest{
			From: "us", Epoch: s.lender.shares.Epoch(), Subject: ref.Subject, Counter: ref.Counter, Whole: whole, Window: window, Units: 30,
		})
		if loan.Units != 30 {
			t.Fatalf("%s: %+v", whole, loan)
		}
		check("used and lent", 50, 30)
		if n, err := s.Credit(t.Context(), s, ref, 15); n != 15 || err != nil {
			t.Errorf("%s: %d given back: %v", whole, n, err)
		}
		check("after a grant", 35, 30)
		if n, err := s.Credit(t.Context(), s, ref, headgate.MaxCost); n != 35 || err != nil {
			t.Errorf("%s: %d given back: %v", whole, n, err)
		}
		check("after a reset", 0, 0)
	}
}

// TestUsageWithoutShare reads and credits the counter of a region whose share has no units.
func TestUsageWithoutShare(t *testing.T) {
	t.Parallel()
	s := newPlain(t)
	whole := headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 1, Window: time.Hour}
	for _, name := range []string{"ann", "bob", "eve", "joe", "kim", "lee", "max", "sue"} {
		ref := CounterRef{headgate.SubjectOf(name), headgate.CounterOf("all", "", whole.Algorithm), whole}
		if share := s.lender.shares.Share(ref.Subject, &whole); share.Count > 0 {
			continue
		}
		u, err := s.Usage(t.Context(), ref)
		n, creditErr := s.Credit(t.Context(), s, ref, headgate.MaxCost)
		if u != (Usage{}) || n != 0 || err != nil || creditErr != nil {
			t.Errorf("%+v, %v; %d given back, %v", u, err, n, creditErr)
		}
		return
	}
	t.Error("all shares have units")
}
