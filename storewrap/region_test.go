package storewrap

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// third returns a third of a limit, the share of one of three regions.
func third(_ headgate.Subject, l *headgate.Limit) headgate.Limit {
	return headgate.Fraction{From: 0, To: 1, Of: 3}.Share(*l)
}

// admittedLocally returns how many of many requests two nodes of one of three regions admit while the store is unavailable, after the store
// has granted some of them.
func admittedLocally(t *testing.T, limit headgate.Limit, before int) (admitted int) {
	t.Helper()
	store := newBroken(t)
	rule := headgate.Rule{ID: "r", By: []string{"user"}, Limit: limit, Regions: headgate.HomeRegion}
	var nodes []*headgate.Limiter
	for range 2 {
		wrapped := wrap(t, store, Options{Nodes: 2, Regions: 3, RegionShare: third})
		rules, err := headgate.Compile(rule)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, headgate.NewLimiter(wrapped, rules, headgate.Options{Share: third}))
	}
	for i := range before {
		if d, _ := nodes[i%2].Check(t.Context(), who("ann")); !d.Allowed || d.Path != headgate.PathStore {
			t.Fatalf("%+v", d)
		}
	}
	for i := range store.failing {
		store.failing[i].Store(true)
	}
	for i := range 400 {
		d, err := nodes[i%2].Check(t.Context(), who("ann"))
		if err != nil || d.Path != headgate.PathLocal || !d.Allowed && d.RetryAfter <= 0 {
			t.Fatalf("%+v: %v", d, err)
		}
		if d.Allowed {
			admitted++
		}
	}
	return admitted
}

// TestRegionShare checks that the nodes of a region admit together at most the region's share of a limit with a home, and of what is left of it.
func TestRegionShare(t *testing.T) {
	t.Parallel()
	quota := headgate.Quota(60, headgate.Month, nil)
	for _, test := range []struct {
		name              string
		limit             headgate.Limit
		before            int
		atLeast, admitted int
	}{
		{"window", quota, 0, 18, 20},
		{"used window", quota, 30, 8, 10},
		{"bucket", headgate.PerDay(60), 0, 16, 20},
		{"used bucket", headgate.PerDay(60), 30, 6, 10},
		{"fewer units than regions", headgate.Quota(2, headgate.Month, nil), 0, 0, 0},
	} {
		if got := admittedLocally(t, test.limit, test.before); got < test.atLeast || got > test.admitted {
			t.Errorf("%s: %d admitted, want %d to %d", test.name, got, test.atLeast, test.admitted)
		}
	}
}

// TestLeasesOfRegions checks that leases are smaller if more regions lease.
func TestLeasesOfRegions(t *testing.T) {
	t.Parallel()
	var f fleet
	f.init(2, 3)
	c := headgate.Charge{Limit: headgate.Per(100, time.Minute), Cost: 1}
	if n := f.sharing(&c); n != 2 || !leasable(&c, n) {
		t.Errorf("%d nodes", n)
	}
	c.Regions = headgate.HomeRegion
	if n := f.sharing(&c); n != 6 || leasable(&c, n) {
		t.Errorf("%d nodes with a home", n)
	}
}
