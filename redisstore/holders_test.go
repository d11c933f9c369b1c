package redisstore

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestHolders checks that the holders of a counter are shown with their nodes, and those of a node that is gone without.
func TestHolders(t *testing.T) {
	t.Parallel()
	address := standalone(startServer(t))
	rule := headgate.Rule{ID: "exports", By: []string{"tenant"}, Limit: headgate.Limit{Algorithm: headgate.Concurrency, Count: 20, Window: time.Hour}}
	begin := func(store *Store, requests int) *headgate.LimitDecision {
		t.Helper()
		l, err := headgate.New(store, rule)
		if err != nil {
			t.Fatal(err)
		}
		var d headgate.Decision
		for range requests {
			if d, err = l.Begin(t.Context(), headgate.Request{Attributes: headgate.Attributes{"tenant": "acme"}}); err != nil || !d.Holds() {
				t.Fatalf("holds %t, %v", d.Holds(), err)
			}
		}
		return &d.Limits[0]
	}
	var stores []*Store
	for _, name := range []string{"api-1\x1b[31m", "api-2", ""} {
		store, err := New(Options{Address: address, Node: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		awaitReady(t, store)
		stores = append(stores, store)
	}
	before := time.Now()
	var limit *headgate.LimitDecision
	for i, store := range stores {
		limit = begin(store, 3-i)
	}
	begin(stores[0], 4) // another limiter on the same node is another holder
	reader, err := headgate.New(stores[1], rule)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want []headgate.Holder) (all []headgate.Holder) {
		t.Helper()
		all, err := reader.Holders(t.Context(), limit)
		if err != nil || len(all) != len(want) {
			t.Fatalf("%s: %+v, %v", when, all, err)
		}
		seen := map[uint64]bool{}
		for i, h := range all {
			if h.Node != want[i].Node || h.Units != want[i].Units || seen[h.ID] {
				t.Errorf("%s: holder %d is %+v, want %+v", when, i, h, want[i])
			}
			if left := h.Until.Sub(before); left < time.Hour-time.Minute || left > time.Hour+time.Minute {
				t.Errorf("%s: holder %d until %s", when, i, h.Until)
			}
			seen[h.ID] = true
		}
		return all
	}
	expect("at first", []headgate.Holder{
		{Node: "api-1[31m", Units: 4}, {Node: "api-1[31m", Units: 3}, {Node: "api-2", Units: 2}, {Node: hostName(), Units: 1},
	})
	stores[0].Close()
	all := expect("without the first node", []headgate.Holder{{Units: 4}, {Units: 3}, {Node: "api-2", Units: 2}, {Node: hostName(), Units: 1}})
	if units, err := reader.ReleaseHolder(t.Context(), limit, all[0].ID); units != 4 || err != nil {
		t.Errorf("released %d units, %v", units, err)
	}
	expect("after a release", []headgate.Holder{{Units: 3}, {Node: "api-2", Units: 2}, {Node: hostName(), Units: 1}})
	limit.Subject = headgate.SubjectOf("another")
	expect("of another subject", nil)
}

// TestNodeNames checks that all nodes are named while they run.
func TestNodeNames(t *testing.T) {
	t.Parallel()
	address := standalone(startServer(t))
	var stores []*Store
	for _, name := range []string{"api-1\x1b[31m", "api-2"} {
		store, err := New(Options{Address: address, Node: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		awaitReady(t, store)
		stores = append(stores, store)
	}
	names, err := stores[0].NodeNames(t.Context())
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"api-1[31m", "api-2"}) {
		t.Errorf("%q, %v", names, err)
	}
	stores[1].Close()
	names, err = stores[0].NodeNames(t.Context())
	if err != nil || !slices.Equal(names, []string{"api-1[31m"}) {
		t.Errorf("%q, %v", names, err)
	}
}
