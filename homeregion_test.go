package headgate_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// regionsStore records the charges that a limiter makes, by their Regions.
type regionsStore struct {
	headgate.Store
	charges []headgate.Charge
}

func (s *regionsStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	s.charges = append(s.charges, charges...)
	return s.Store.Take(ctx, charges, results)
}

// taken returns the Regions of all charges since the last call.
func (s *regionsStore) taken() (all []string) {
	for i := range s.charges {
		all = append(all, s.charges[i].Regions.String())
	}
	s.charges = nil
	return all
}

// homeLimiter returns a limiter with a rule that has a home, with a candidate, and one that has none. Both count by user.
func homeLimiter(t *testing.T, regions bool) (*headgate.Limiter, *regionsStore) {
	t.Helper()
	store := &regionsStore{Store: memstore.New(memstore.Options{})}
	rules, err := headgate.Compile(
		headgate.Rule{ID: "each", By: []string{"user"}, Limit: headgate.PerHour(5)},
		headgate.Rule{
			ID: "home", By: []string{"user"}, Limit: headgate.PerHour(5), Regions: headgate.HomeRegion,
			Candidate: headgate.Plan{Limit: headgate.PerHour(4)},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	o := headgate.Options{Secret: []byte("secret")}
	if regions {
		o.Share = func(_ headgate.Subject, l *headgate.Limit) headgate.Limit { return *l }
	}
	return headgate.NewLimiter(store, rules, o), store
}

// TestHomeCharges checks that all charges of a rule with a home say so, if there are regions: those of checks, peeks, refunds and reservations.
func TestHomeCharges(t *testing.T) {
	t.Parallel()
	l, store := homeLimiter(t, true)
	req := headgate.Request{Attributes: headgate.Attributes{"user": "ann"}}
	var token []byte
	for _, step := range []struct {
		name string
		call func() (headgate.Decision, error)
		want []string
	}{
		{"check", func() (headgate.Decision, error) { return l.Check(t.Context(), req) }, []string{"each", "home", "home"}},
		// Nothing is recorded in either place, because a charge that cannot fit goes to both.
		{"peek", func() (headgate.Decision, error) { return l.Peek(t.Context(), req) }, []string{"each", "home", "home", "each", "home"}},
		{"refund", func() (headgate.Decision, error) { return l.Refund(t.Context(), req) }, []string{"each", "home", "home"}},
		{"reserve", func() (headgate.Decision, error) {
			r, err := l.Reserve(t.Context(), req, time.Minute)
			token = r.Token
			return r.Decision, err
		}, []string{"each", "home", "home"}},
		{"commit", func() (headgate.Decision, error) { return l.Commit(t.Context(), token, req) }, []string{"each", "home", "home"}},
	} {
		d, err := step.call()
		if got := store.taken(); err != nil || !d.Allowed || !slices.Equal(got, step.want) {
			t.Errorf("%s: charges %v, want %v; allowed %v, %v", step.name, got, step.want, d.Allowed, err)
		}
	}
	c := headgate.Charge{Regions: headgate.HomeRegion, Limit: headgate.PerHour(5), Cost: 1}
	if undo, ok := c.Undo(&headgate.Result{Receipt: headgate.Receipt{Units: 1}}); !ok || undo.Regions != headgate.HomeRegion {
		t.Errorf("undo: %v, %v", undo.Regions, ok)
	}
}

// TestHomeWithoutRegions checks that a rule with a home is like any other if there is only one region.
func TestHomeWithoutRegions(t *testing.T) {
	t.Parallel()
	l, store := homeLimiter(t, false)
	if _, err := l.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"user": "ann"}}); err != nil {
		t.Fatal(err)
	}
	if got := store.taken(); !slices.Equal(got, []string{"each", "each", "each"}) {
		t.Errorf("charges %v", got)
	}
}

// TestHomeOverriddenByConcurrency checks that a concurrency limit of an override is counted in each region.
func TestHomeOverriddenByConcurrency(t *testing.T) {
	t.Parallel()
	l, store := homeLimiter(t, true)
	if err := l.Exceptions().Set(headgate.Override{
		Rule: "home", Subject: headgate.Attributes{"user": "ann"}, Limit: headgate.Limit{Algorithm: headgate.Concurrency, Count: 2, Window: time.Minute},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Begin(t.Context(), headgate.Request{Attributes: headgate.Attributes{"user": "ann"}}); err != nil {
		t.Fatal(err)
	}
	if got := store.taken(); slices.Contains(got, "home") {
		t.Errorf("charges %v", got)
	}
}
