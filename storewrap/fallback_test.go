package storewrap

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

func TestLocalShare(t *testing.T) {
	t.Parallel()
	c := headgate.Charge{Limit: headgate.PerMinute(1_000_000)}
	s := share{nodes: 10, percent: 20}
	if l, _, _ := s.scale(&c, time.Now()); l.Count != 1_000_000 || l.Window != 50*time.Minute || l.Burst != 20_000 {
		t.Errorf("%v", l)
	}
}

// outage is several nodes that share a store that can fail.
type outage struct {
	store *broken
	nodes []*headgate.Limiter
}

func newOutage(t *testing.T, n int, rules ...headgate.Rule) *outage {
	t.Helper()
	f := &outage{store: newBroken(t)}
	for range n {
		wrapped := wrap(t, f.store, Options{Nodes: n})
		node, err := newLimiter(wrapped, rules...)
		if err != nil {
			t.Fatal(err)
		}
		f.nodes = append(f.nodes, node)
	}
	return f
}

func (f *outage) fail(failing bool) {
	for i := range f.store.failing {
		f.store.failing[i].Store(failing)
	}
}

func who(name string) headgate.Request {
	return headgate.Request{Attributes: headgate.Attributes{"user": name}}
}

func hourly(n int64) headgate.Limit {
	return headgate.Limit{Algorithm: headgate.FixedWindow, Count: n, Window: time.Hour}
}

// With the store unavailable from the start, all nodes together admit what the limit allows.
func TestNodesShareALimit(t *testing.T) {
	t.Parallel()
	const limit, nodes = 1_010, 20
	f := newOutage(t, nodes, headgate.Rule{ID: "r", By: []string{"user"}, Limit: hourly(limit)})
	f.fail(true)
	admitted := 0
	for _, node := range f.nodes {
		for range limit {
			d, err := node.Check(t.Context(), who("ann"))
			if err != nil || d.Path != headgate.PathLocal || !d.Allowed && d.RetryAfter <= 0 {
				t.Fatalf("%+v: %v", d, err)
			}
			if d.Allowed {
				admitted++
			}
		}
	}
	// An edge of the clock's hours may fall into the test.
	if (admitted < limit-nodes || admitted > limit+nodes) && admitted < 2*limit-2*nodes {
		t.Errorf("%d admitted of %d", admitted, limit)
	}
}

// A node continues from what was left, and does not start again with its whole share.
func TestShareStartsFromWhatIsLeft(t *testing.T) {
	t.Parallel()
	const limit, nodes = 1_000, 4
	f := newOutage(t, nodes, headgate.Rule{ID: "r", By: []string{"user"}, Limit: headgate.Limit{Count: limit, Window: time.Hour}})
	node := f.nodes[0]
	spent := who("ann")
	spent.Cost = 900
	if d, err := node.Check(t.Context(), spent); err != nil || !d.Allowed || d.Path != headgate.PathStore {
		t.Fatalf("%+v: %v", d, err)
	}
	f.fail(true)
	admitted := 0
	for range limit {
		if d, _ := node.Check(t.Context(), who("ann")); d.Allowed {
			admitted++
		}
	}
	if admitted < 24 || admitted > 27 {
		t.Errorf("%d admitted of the 25 that were left for this node", admitted)
	}
	f.fail(false)
	eventually(t, "the store", func() bool { d, _ := node.Check(t.Context(), who("ann")); return d.Path == headgate.PathStore })
}

// Charges of rules with on_store_failure allow or deny are left undecided for the limiter.
func TestFailAllowAndFailDeny(t *testing.T) {
	t.Parallel()
	for policy, allowed := range map[headgate.OnStoreFailure]bool{headgate.FailAllow: true, headgate.FailDeny: false} {
		f := newOutage(t, 1, headgate.Rule{ID: "r", By: []string{"user"}, Limit: hourly(5), OnStoreFailure: policy},
			headgate.Rule{ID: "local", By: []string{"user"}, Limit: hourly(1_000)})
		f.fail(true)
		for range 20 {
			if d, err := f.nodes[0].Check(t.Context(), who("ann")); err != nil || d.Allowed != allowed || d.Path != headgate.PathFailed {
				t.Fatalf("%v: %+v: %v", policy, d, err)
			}
		}
		d, _ := f.nodes[0].Peek(t.Context(), who("ann"))
		if used := 1_000 - d.Limits[1].Remaining; used > 20 || allowed != (used > 0) {
			t.Errorf("%v: %d are used of the other limit", policy, used)
		}
	}
}

// Units that the store granted are refunded if this node's share denies the request.
func TestLocalDenialUndoes(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	s := wrap(t, b, Options{})
	up, down := chargeOn(0), chargeOn(1)
	up.Limit, down.Limit = hourly(100), hourly(3)
	up.OnStoreFailure, down.OnStoreFailure = headgate.FailLocal, headgate.FailLocal
	b.failing[1].Store(true)
	admitted := 0
	for range 10 {
		r, err := take(s, up, down)
		if err != nil {
			t.Fatal(err)
		}
		if r[0].Allowed && r[1].Allowed {
			admitted++
		} else if r[0].Granted != 0 || r[1].Granted != 0 {
			t.Errorf("denied, and charged: %+v", r)
		}
	}
	up.Cost = 0
	if r, err := take(s, up); err != nil || admitted != 3 || r[0].Remaining != 97 {
		t.Errorf("%d admitted, and %+v: %v", admitted, r, err)
	}
}

// A reservation that this node holds locally is charged to the store after recovery.
func TestReservationDuringOutage(t *testing.T) {
	t.Parallel()
	f := newOutage(t, 1, headgate.Rule{ID: "r", By: []string{"user"}, Limit: hourly(100)})
	f.fail(true)
	req := who("ann")
	req.Cost = 40
	held, err := f.nodes[0].Reserve(t.Context(), req, time.Minute)
	if err != nil || !held.Decision.Allowed || held.Decision.Path != headgate.PathLocal {
		t.Fatalf("%+v: %v", held, err)
	}
	if d, _ := f.nodes[0].Peek(t.Context(), who("ann")); d.Limits[0].Remaining != 60 {
		t.Errorf("%+v", d)
	}
	f.fail(false)
	eventually(t, "the store", func() bool { d, _ := f.nodes[0].Peek(t.Context(), who("ann")); return d.Path == headgate.PathStore })
	req.Cost = 96
	if d, err := f.nodes[0].Check(t.Context(), req); err != nil || !d.Allowed {
		t.Fatalf("%+v: %v", d, err)
	}
	if d, err := f.nodes[0].Commit(t.Context(), held.Token, headgate.Request{Cost: 7}); err != nil || d.Limits[0].Granted != 7 {
		t.Errorf("%+v: %v", d, err)
	}
}

func BenchmarkTake(b *testing.B) {
	inner := memstore.New(memstore.Options{})
	limit := headgate.PerSecond(headgate.MaxCost)
	charges := make([]headgate.Charge, 1_000)
	for i := range charges {
		charges[i] = headgate.Charge{Subject: headgate.SubjectOf(strconv.Itoa(i)), Limit: limit, Cost: 1}
	}
	results := make([]headgate.Result, 1)
	for name, store := range map[string]headgate.Store{"bare": inner, "wrapped": wrap(b, inner, Options{})} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if err := store.Take(b.Context(), charges[i%1_000:i%1_000+1], results); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// newLimiter returns a limiter with a secret, for stores that have no key to sign reservations with.
func newLimiter(store headgate.Store, rules ...headgate.Rule) (*headgate.Limiter, error) {
	set, err := headgate.Compile(rules...)
	return headgate.NewLimiter(store, set, headgate.Options{Secret: []byte("of the tests")}), err
}
