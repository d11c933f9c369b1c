package region

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/storewrap"
)

// TestHomeLeases has all regions use up a limit at the same time, with leases of the home: they allow no more than the limit together, and
// most requests are decided without a call to the home.
func TestHomeLeases(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	const limit = 20_000
	rules, err := headgate.Compile(headgate.Rule{
		ID: "home", By: headgate.Global, Regions: headgate.HomeRegion,
		Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Window: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	wrap := func(store headgate.Store, s *Shares) *storewrap.Store {
		w := storewrap.New(store, storewrap.Options{
			Deadline: time.Minute, Regions: len(routedMembers), RegionShare: s.Share, Log: slog.New(slog.DiscardHandler),
		})
		t.Cleanup(w.Close)
		return w
	}
	stores, shares := map[string]*fakeRegion{}, map[string]*Shares{}
	locals, homes := map[string]*storewrap.Store{}, map[string]*homeCalls{}
	for _, m := range routedMembers {
		stores[m.Name], shares[m.Name] = &fakeRegion{Store: memstore.New(memstore.Options{})}, NewShares(routedMembers, m.Name)
		locals[m.Name] = wrap(stores[m.Name], shares[m.Name])
		homes[m.Name] = &homeCalls{HomeStore: NewHomeStore(locals[m.Name], shares[m.Name])}
	}
	var allowed, requests atomic.Int64
	var running sync.WaitGroup
	for _, m := range routedMembers {
		targets := map[string]headgate.Store{}
		for name, home := range homes {
			if name != m.Name {
				targets[name] = wrap(NewHomeTarget(home, func() (int, int) { return 1, 1 }), shares[m.Name])
			}
		}
		router := NewRouter(locals[m.Name], shares[m.Name], targets)
		t.Cleanup(router.Close)
		l := headgate.NewLimiter(router, rules, headgate.Options{Share: shares[m.Name].Share})
		running.Go(func() {
			for denied := 0; denied < 5 && requests.Add(1) < 4*limit; {
				d, err := l.Check(t.Context(), headgate.Request{})
				switch {
				case err != nil || d.Path == headgate.PathLocal || d.Path == headgate.PathFailed:
					t.Errorf("%+v: %v", d, err)
					return
				case d.Allowed:
					allowed.Add(1)
				default:
					denied++
					time.Sleep(20 * time.Millisecond) // until leases have been returned
				}
				time.Sleep(50 * time.Microsecond) // a rate that leases are made for
			}
		})
	}
	running.Wait()
	var calls int64
	for _, home := range homes {
		calls += home.calls.Load()
	}
	t.Logf("%d allowed, %d calls to the home", allowed.Load(), calls)
	if n := allowed.Load(); n > limit || n < limit*9/10 {
		t.Errorf("%d of %d were allowed", n, limit)
	}
	if 10*calls > 6*allowed.Load() { // without leases, two thirds of the requests are calls
		t.Errorf("%d calls to the home for %d requests", calls, allowed.Load())
	}
}

// homeCalls counts the calls to a home.
type homeCalls struct {
	*HomeStore
	calls atomic.Int64
}

func (h *homeCalls) Shard(headgate.Subject) int { return 0 }

func (h *homeCalls) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	h.calls.Add(1)
	return h.HomeStore.Take(ctx, charges, results)
}
