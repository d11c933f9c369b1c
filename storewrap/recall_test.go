package storewrap

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// pair is two nodes that share a store, in virtual time; the first holds a lease.
type pair struct {
	*testing.T
	cluster *cluster
	charge  headgate.Charge
	granted int64 // by both
}

func inPair(t *testing.T, a headgate.Algorithm, limit int64, test func(p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		p := &pair{T: t, cluster: newCluster(t, 2, func() headgate.Store { return shared }), charge: yearly(a, limit)}
		for range 200 {
			p.take(0, 1)
			time.Sleep(10 * time.Millisecond)
		}
		if p.held() == 0 {
			t.Fatalf("%v: no lease was taken", a)
		}
		test(p)
	})
}

func (p *pair) take(node int, cost int64) headgate.Result {
	p.Helper()
	c := p.charge
	c.Cost = cost
	r, err := take(p.cluster.nodes[node], c)
	if err != nil {
		p.Fatal(err)
	}
	p.granted += r[0].Granted
	return r[0]
}

func (p *pair) held() int64 { return p.cluster.nodes[0].held(p.charge) }

// A node that is denied gets the units that another node holds, within the time for which a first denial is cached.
func TestRecall(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inPair(t, a, 10_000, func(p *pair) {
			held := p.held()
			if r := p.take(1, 10_000-p.granted-held); !r.Allowed {
				p.Fatalf("%v: %+v", a, r)
			}
			if r := p.take(1, held); r.Allowed {
				p.Fatalf("%v: %+v", a, r)
			}
			time.Sleep(minTrust)
			if r := p.take(1, held); !r.Allowed || p.held() != 0 || p.granted != 10_000 {
				p.Errorf("%v: %+v, and %d are still held", a, r, p.held())
			}
			if sent := p.cluster.bus.sent.Load(); sent != 1 {
				p.Errorf("%v: %d recalls", a, sent)
			}
		})
	}
}

// Units that several nodes return to a bucket are all available again, in whichever order they are returned.
func TestReturnsToABucketAddUp(t *testing.T) {
	t.Parallel()
	for _, earlier := range []int{80, 90, 108, 120, 200} {
		synctest.Test(t, func(t *testing.T) {
			const limit = 5_000
			shared := memstore.New(memstore.Options{})
			p := &pair{T: t, cluster: newCluster(t, 4, func() headgate.Store { return shared }), charge: yearly(headgate.TokenBucket, limit)}
			for i := range earlier {
				p.take(i%3, 1)
				time.Sleep(10 * time.Millisecond)
			}
			if r := p.take(3, limit-p.granted+1); r.Allowed {
				t.Fatalf("%+v", r)
			}
			time.Sleep(time.Second)
			if left := p.take(3, 0).Remaining; left < limit-p.granted-6 || left > limit-p.granted {
				t.Errorf("after %d requests %d are left", earlier, left)
			}
		})
	}
}

// A node that gets no more requests returns its leases long before they end.
func TestIdleLeasesAreReturned(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inPair(t, a, 100_000, func(p *pair) {
			time.Sleep(2 * idleAfter)
			if p.held() != 0 {
				p.Errorf("%v: %d are held", a, p.held())
			}
			c := p.charge
			if got := used(p.T, p.cluster.connections[1].Store, c); got != p.granted {
				p.Errorf("%v: %d used of %d", a, got, p.granted)
			}
		})
	}
}

// A reset gives back the used units and no more, even if another node holds a lease.
func TestResetWithALease(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	for _, a := range leased {
		inPair(t, a, limit, func(p *pair) {
			reset := p.charge
			reset.Credit, reset.Cost = true, headgate.MaxCost
			if _, err := take(p.cluster.nodes[1], reset); err != nil {
				p.Fatal(err)
			}
			p.granted = 0
			for i := range 2 * limit {
				p.take(i%2, 1)
				time.Sleep(200 * time.Microsecond)
			}
			time.Sleep(2 * maxTerm)
			for i := range 2_000 {
				p.take(i%2, 1)
				time.Sleep(time.Millisecond)
			}
			if leaked := int64(1); p.granted > limit+leaked || p.granted < limit-1 {
				p.Errorf("%v: %d admitted of %d", a, p.granted, limit)
			}
		})
	}
}

// Invalid recall messages are ignored.
func TestInvalidRecallsAreIgnored(t *testing.T) {
	t.Parallel()
	inPair(t, headgate.FixedWindow, 10_000, func(p *pair) {
		held := p.held()
		for _, message := range [][]byte{nil, {}, {recallVersion}, make([]byte, 33), append([]byte{recallVersion + 1}, make([]byte, 32)...), make([]byte, 1<<16)} {
			if err := p.cluster.bus.Publish(p.Context(), recallChannel, message); err != nil {
				p.Fatal(err)
			}
		}
		if p.held() != held {
			p.Errorf("%d of %d are held", p.held(), held)
		}
	})
}

// noSubscribe is a store on which subscriptions fail.
type noSubscribe struct {
	*memstore.Store
	bus
}

func (*noSubscribe) Subscribe(context.Context, []string, func(string, []byte)) error {
	return errors.New("NOPERM")
}

// If recalls cannot be received, one line is logged.
func TestUnavailableRecallsAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		wrap(t, &noSubscribe{Store: memstore.New(memstore.Options{})}, Options{Log: l.logger()})
		time.Sleep(time.Minute)
		if l.lines() != 1 {
			t.Error(l.String())
		}
	})
}
