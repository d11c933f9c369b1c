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

// pair is two nodes before one store, in virtual time; the first holds a lease.
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
			p.ask(0, 1)
			time.Sleep(10 * time.Millisecond)
		}
		if p.held() == 0 {
			t.Fatalf("%v: no lease was taken", a)
		}
		test(p)
	})
}

func (p *pair) ask(node int, cost int64) headgate.Result {
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

// A node that is denied gets what another holds, within the time for which its denial is cached at first.
func TestRecall(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inPair(t, a, 10_000, func(p *pair) {
			held := p.held()
			if r := p.ask(1, 10_000-p.granted-held); !r.Allowed {
				p.Fatalf("%v: %+v", a, r)
			}
			if r := p.ask(1, held); r.Allowed {
				p.Fatalf("%v: %+v", a, r)
			}
			time.Sleep(minTrust)
			if r := p.ask(1, held); !r.Allowed || p.held() != 0 || p.granted != 10_000 {
				p.Errorf("%v: %+v, and %d are still held", a, r, p.held())
			}
			if sent := p.cluster.bus.sent.Load(); sent != 1 {
				p.Errorf("%v: %d recalls", a, sent)
			}
		})
	}
}

// Units that several nodes return to a bucket are all there again, in whichever order they come.
func TestReturnsToABucketAddUp(t *testing.T) {
	t.Parallel()
	for _, earlier := range []int{80, 90, 108, 120, 200} {
		synctest.Test(t, func(t *testing.T) {
			const limit = 5_000
			shared := memstore.New(memstore.Options{})
			p := &pair{T: t, cluster: newCluster(t, 4, func() headgate.Store { return shared }), charge: yearly(headgate.TokenBucket, limit)}
			for i := range earlier {
				p.ask(i%3, 1)
				time.Sleep(10 * time.Millisecond)
			}
			if r := p.ask(3, limit-p.granted+1); r.Allowed {
				t.Fatalf("%+v", r)
			}
			time.Sleep(time.Second)
			if left := p.ask(3, 0).Remaining; left < limit-p.granted-6 || left > limit-p.granted {
				t.Errorf("after %d requests %d are left", earlier, left)
			}
		})
	}
}

// A node that is asked no more returns what it holds, long before its leases end.
func TestIdleLeasesGoBack(t *testing.T) {
	t.Parallel()
	for _, a := range leased {
		inPair(t, a, 100_000, func(p *pair) {
			time.Sleep(2 * idleAfter)
			if p.held() != 0 {
				p.Errorf("%v: %d are held", a, p.held())
			}
			c := p.charge
			if got := used(p.T, p.cluster.cables[1].Store, c); got != p.granted {
				p.Errorf("%v: %d used of %d", a, got, p.granted)
			}
		})
	}
}

// A reset gives back what was used and no more, though another node holds a lease.
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
				p.ask(i%2, 1)
				time.Sleep(200 * time.Microsecond)
			}
			time.Sleep(2 * maxTerm)
			for i := range 2_000 {
				p.ask(i%2, 1)
				time.Sleep(time.Millisecond)
			}
			if leaked := int64(1); p.granted > limit+leaked || p.granted < limit-1 {
				p.Errorf("%v: %d admitted of %d", a, p.granted, limit)
			}
		})
	}
}

// Messages that are no recalls are ignored.
func TestHostileRecalls(t *testing.T) {
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

// deaf is a store that carries messages which cannot be heard.
type deaf struct {
	*memstore.Store
	bus
}

func (*deaf) Subscribe(context.Context, []string, func(string, []byte)) error {
	return errors.New("NOPERM")
}

// An operator is told once if other nodes cannot be heard.
func TestDeafNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		wrap(t, &deaf{Store: memstore.New(memstore.Options{})}, Options{Log: l.logger()})
		time.Sleep(time.Minute)
		if l.lines() != 1 {
			t.Error(l.String())
		}
	})
}
