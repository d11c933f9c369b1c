package storewrap

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// silent is a store that never answers.
type silent struct{ *memstore.Store }

func (silent) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i] = headgate.Result{Err: headgate.ErrUnavailable}
	}
	return headgate.ErrUnavailable
}

// TestNoShare charges a region's share that has no units, as a region has that is drained, while the store is available and while it is not.
func TestNoShare(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []headgate.Algorithm{
		headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog, headgate.Concurrency,
	} {
		whole := headgate.Limit{Algorithm: algorithm, Count: 100, Window: time.Minute}
		c := headgate.Charge{
			Subject: headgate.SubjectOf("a"), Counter: headgate.CounterOf("a", "", algorithm), Limit: headgate.Fraction{Of: 2}.Share(whole), Whole: whole, Cost: 1,
		}
		memory := memstore.New(memstore.Options{})
		for name, inner := range map[string]headgate.Store{"available": memory, "unavailable": silent{memory}} {
			s := New(inner, Options{})
			for range 3 {
				var results [1]headgate.Result
				if err := s.Take(t.Context(), []headgate.Charge{c}, results[:]); err == nil && results[0].Allowed {
					t.Errorf("%s, %s: allowed: %+v", algorithm, name, results[0])
				}
			}
			s.Close()
		}
	}
}
