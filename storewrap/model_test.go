package storewrap

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

var seed = flag.Uint64("seed", 0, "seed of the generated traffic; 0 means a random one")

func newSeed() uint64 {
	if *seed != 0 {
		return *seed
	}
	return rand.Uint64()
}

// traffic generates requests: the pause before the next one, and its node.
type traffic func(r *rand.Rand, at time.Duration, nodes int) (pause time.Duration, node int)

func steady(perSecond float64) traffic {
	return func(r *rand.Rand, _ time.Duration, nodes int) (time.Duration, int) {
		return time.Duration(r.ExpFloat64() / perSecond * 1e9), r.IntN(nodes)
	}
}

// bursty sends the requests of each half second in its first tenth of a second.
func bursty(perSecond float64) traffic {
	const every, burst = 500 * time.Millisecond, 100 * time.Millisecond
	within := steady(perSecond * float64(every/burst))
	return func(r *rand.Rand, at time.Duration, nodes int) (time.Duration, int) {
		pause, node := within(r, at, nodes)
		if in := at % every; in > burst {
			pause += every - in
		}
		return pause, node
	}
}

// skewed sends four fifths of the requests to one node.
func skewed(perSecond float64) traffic {
	evenly := steady(perSecond)
	return func(r *rand.Rand, at time.Duration, nodes int) (time.Duration, int) {
		pause, node := evenly(r, at, nodes)
		if r.IntN(5) > 0 {
			node = 0
		}
		return pause, node
	}
}

// hopping sends all requests to one node, and to the next one after a tenth of a second.
func hopping(perSecond float64) traffic {
	evenly := steady(perSecond)
	return func(r *rand.Rand, at time.Duration, nodes int) (time.Duration, int) {
		pause, _ := evenly(r, at, nodes)
		return pause, int(at/(100*time.Millisecond)) % nodes
	}
}

// connection is a node's connection to the store, which can be cut.
type connection struct {
	headgate.Store
	*bus
	calls        *atomic.Int64
	disconnected atomic.Bool
}

func (c *connection) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if c.disconnected.Load() {
		return failAll(results, errGone)
	}
	c.calls.Add(1)
	return c.Store.Take(ctx, charges, results)
}

// bus delivers messages between nodes without delay.
type bus struct {
	mu      sync.Mutex
	next    int
	receive map[int]func(channel string, message []byte)
	sent    atomic.Int64
}

func (b *bus) Publish(_ context.Context, channel string, message []byte) error {
	b.sent.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, receive := range b.receive {
		receive(channel, message)
	}
	return nil
}

func (b *bus) Subscribe(ctx context.Context, _ []string, receive func(channel string, message []byte)) error {
	b.mu.Lock()
	if b.receive == nil {
		b.receive = map[int]func(string, []byte){}
	}
	b.next++
	id := b.next
	b.receive[id] = receive
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	delete(b.receive, id)
	b.mu.Unlock()
	return ctx.Err()
}

// cluster is several nodes that share a store and can be killed.
type cluster struct {
	bus         bus
	nodes       []*Store
	connections []*connection
	calls       atomic.Int64
	kills       int
}

func newCluster(t *testing.T, n int, dial func() headgate.Store) *cluster {
	c := &cluster{nodes: make([]*Store, n), connections: make([]*connection, n)}
	for i := range n {
		c.start(i, dial())
	}
	t.Cleanup(c.close)
	return c
}

func (c *cluster) start(i int, inner headgate.Store) {
	c.connections[i] = &connection{Store: inner, bus: &c.bus, calls: &c.calls}
	o := Options{Nodes: len(c.nodes), Deadline: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}
	c.nodes[i] = New(c.connections[i], o)
}

// kill disconnects a node with the units that it holds, and starts another in its place.
func (c *cluster) kill(i int) {
	c.connections[i].disconnected.Store(true)
	c.nodes[i].Close()
	c.start(i, c.connections[i].Store)
	c.kills++
}

func (c *cluster) close() {
	for _, node := range c.nodes {
		node.Close()
	}
}

// model is traffic on one counter of many nodes, in virtual time.
type model struct {
	limit  headgate.Limit
	nodes  int
	next   traffic
	lasts  time.Duration
	warm   time.Duration // calls are not counted before
	kills  time.Duration // interval at which a node is killed; 0 means never
	strict bool          // the rule is strict
}

// figures are the outcome of a model, and strict is what the store alone would have admitted.
type figures struct {
	requests, admitted, strict int
	calls, warm                int64 // warm is the number of requests before calls are counted
	kills                      int
	held                       int64 // leased units at the end
}

func (f *figures) ratio() float64     { return float64(f.admitted) / float64(f.strict) }
func (f *figures) falselyDenied() int { return f.strict - f.admitted - int(f.held) } // denied
func (f *figures) callsPerRequest() float64 {
	return float64(f.calls) / float64(int64(f.requests)-f.warm)
}

func (f figures) String() string {
	return fmt.Sprintf("%d requests, %d ÷ %d admitted = %.4f, %d denied falsely, %.4f calls each, %d kills",
		f.requests, f.admitted, f.strict, f.ratio(), f.falselyDenied(), f.callsPerRequest(), f.kills)
}

// run plays the model, and logs its seed if the test fails.
func (m model) run(t *testing.T) (f figures) {
	seed := newSeed()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with -run '%s$' -seed %d: %v", t.Name(), seed, f)
		}
	})
	synctest.Test(t, func(t *testing.T) { f = m.play(t, rand.New(rand.NewPCG(seed, 0))) })
	return f
}

func (m *model) play(t *testing.T, r *rand.Rand) (f figures) {
	shared, alone := memstore.New(memstore.Options{}), memstore.New(memstore.Options{})
	c := newCluster(t, m.nodes, func() headgate.Store { return shared })
	charge := []headgate.Charge{{
		Subject: headgate.SubjectOf("ann"), Counter: headgate.CounterOf("r", "", m.limit.Algorithm),
		Limit: m.limit, Cost: 1, Strict: m.strict,
	}}
	bound, admitted := m.bound(), headgate.State{}
	mine, theirs := make([]headgate.Result, 1), make([]headgate.Result, 1)
	start, killed := time.Now(), time.Duration(0)
	for at := time.Duration(0); at < m.lasts; at = time.Since(start) {
		pause, node := m.next(r, at, m.nodes)
		time.Sleep(pause)
		if m.kills > 0 && at-killed > m.kills {
			c.kill(node)
			killed = at
		}
		if err := c.nodes[node].Take(t.Context(), charge, mine); err != nil {
			t.Fatal(err)
		}
		if err := alone.Take(t.Context(), charge, theirs); err != nil {
			t.Fatal(err)
		}
		if f.requests++; at < m.warm {
			f.warm, f.calls = int64(f.requests), -c.calls.Load()
		}
		if theirs[0].Allowed {
			f.strict++
		}
		if m.strict && (mine[0].Allowed != theirs[0].Allowed || mine[0].Remaining != theirs[0].Remaining) {
			t.Fatalf("%+v, want %+v", mine[0], theirs[0])
		}
		if !mine[0].Allowed {
			continue
		}
		f.admitted++
		var fits headgate.Result
		if admitted, fits = bound.Take(admitted, charge[0], time.Now()); !fits.Allowed {
			t.Fatalf("after %v %d are admitted, which is more than %v", time.Since(start), f.admitted, bound)
		}
	}
	f.calls, f.kills = f.calls+c.calls.Load(), c.kills
	for _, node := range c.nodes {
		f.held += node.held(charge[0])
	}
	return f
}

// bound returns a limit that admits the maximum of any period: for a bucket a twentieth more, which was leased before; for a
// window no more than without leases.
func (m *model) bound() headgate.Limit {
	bound := m.limit
	if bound.Algorithm == headgate.TokenBucket {
		bound.Burst = bound.Capacity() + bound.Capacity()/leaseFraction
	}
	return bound
}

// checkBounds fails the test unless about as much was admitted as by the store alone, less the leases of killed nodes.
func (m *model) checkBounds(t *testing.T, f figures) {
	t.Helper()
	lost := float64(f.kills) * float64(m.limit.Capacity()) / float64(leaseFraction*m.nodes)
	if admitted := float64(f.admitted); admitted < 0.998*float64(f.strict)-lost || admitted > 1.005*float64(f.strict) {
		t.Errorf("%d admitted, want %d", f.admitted, f.strict)
	}
	if float64(f.falselyDenied())-lost > 0.0005*float64(f.requests) {
		t.Errorf("%d of %d denied falsely", f.falselyDenied(), f.requests)
	}
}

func modelled() []headgate.Limit {
	return []headgate.Limit{
		headgate.PerSecond(1_000),
		{Count: 6_000, Window: time.Minute, Burst: 1_000},
		{Algorithm: headgate.FixedWindow, Count: 2_000, Window: 2 * time.Second},
		{Algorithm: headgate.SlidingWindow, Count: 2_000, Window: 2 * time.Second},
	}
}

// inName returns the limit without slashes, which separate the names of subtests.
func inName(l headgate.Limit) string { return strings.ReplaceAll(l.String(), "/", " per ") }

// Leases admit as much as the store alone would, for any distribution of requests over nodes and any load.
func TestLeasesAdmitAsMuchAsStore(t *testing.T) {
	t.Parallel()
	for _, limit := range modelled() {
		rate := float64(limit.Count) / limit.Window.Seconds()
		shapes := map[string]func(float64) traffic{"steady": steady, "bursty": bursty, "skewed": skewed, "hopping": hopping}
		for name, of := range shapes {
			for load, lasts := range map[float64]time.Duration{
				0.5: 4 * time.Second, 1.05: 10 * time.Second, 20: 2200 * time.Millisecond,
			} {
				t.Run(fmt.Sprintf("%s %s %g", inName(limit), name, load), func(t *testing.T) {
					t.Parallel()
					m := model{limit: limit, nodes: 20, next: of(load * rate), lasts: lasts}
					f := m.run(t)
					m.checkBounds(t, f)
					t.Log(f)
				})
			}
		}
	}
}

// A killed node loses the units that it holds, and no more.
func TestKilledNodes(t *testing.T) {
	t.Parallel()
	for _, limit := range modelled() {
		t.Run(inName(limit), func(t *testing.T) {
			t.Parallel()
			rate := float64(limit.Count) / limit.Window.Seconds()
			m := model{limit: limit, nodes: 20, next: skewed(3 * rate), lasts: 4 * time.Second}
			m.kills = 100 * time.Millisecond
			f := m.run(t)
			if m.checkBounds(t, f); f.kills < 20 {
				t.Errorf("%d kills", f.kills)
			}
		})
	}
}

// Every charge of a strict rule is decided by the store.
func TestStrictModel(t *testing.T) {
	t.Parallel()
	for _, limit := range modelled() {
		t.Run(inName(limit), func(t *testing.T) {
			t.Parallel()
			m := model{limit: limit, nodes: 20, next: steady(2_000), lasts: 2 * time.Second, strict: true}
			if f := m.run(t); f.calls != int64(f.requests) {
				t.Errorf("%v", f)
			}
		})
	}
}

// A counter that all requests use needs few calls after a warm-up.
func TestCallsOfAHotCounter(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	m := model{limit: headgate.PerSecond(1_000), nodes: 4, next: steady(50_000), lasts: 5 * time.Second, warm: time.Second}
	if f := m.run(t); f.callsPerRequest() > 0.01 || f.ratio() < 0.995 || f.ratio() > 1.005 {
		t.Errorf("at 50 times its limit: %v", f)
	}
}

// A client far above its limit causes few calls, whether other nodes may hold units of its limit or not.
func TestCallsDuringAttack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit     headgate.Limit
		perSecond float64
		calls     int64
	}{
		{headgate.PerMinute(10), 100_000, 20},
		{headgate.PerMinute(10), 300, 20},
		{headgate.PerSecond(10), 300, 40}, // of which half are granted
		{headgate.PerMinute(100), 300, 110},
	} {
		m := model{limit: test.limit, nodes: 1, next: steady(test.perSecond), lasts: time.Second}
		if f := m.run(t); f.calls > test.calls || f.admitted != f.strict {
			t.Errorf("%v, %g requests per second: %d calls, %v", test.limit, test.perSecond, f.calls, f)
		}
	}
}

// Among many clients, most of them below their limits, the busy ones cause few calls.
func TestCallsOfManyClients(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	seed := newSeed()
	synctest.Test(t, func(t *testing.T) {
		const nodes, requests, pause = 4, 80_000, 20 * time.Microsecond
		r := rand.New(rand.NewPCG(seed, 0))
		clients := rand.NewZipf(r, 1.1, 1, 99_999)
		shared := memstore.New(memstore.Options{})
		c := newCluster(t, nodes, func() headgate.Store { return shared })
		charge := []headgate.Charge{{Counter: 1, Limit: headgate.PerSecond(5_000), Cost: 1}}
		results := make([]headgate.Result, 1)
		var before int64
		const warm = 3 * requests
		for i := range warm + requests {
			if i == warm { // warmed up
				before = c.calls.Load()
			}
			binary.LittleEndian.PutUint64(charge[0].Subject[:], clients.Uint64())
			if err := c.nodes[r.IntN(nodes)].Take(t.Context(), charge, results); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause)
		}
		calls := float64(c.calls.Load()-before) / requests
		t.Logf("%.4f calls each", calls)
		if calls > 0.3 {
			t.Errorf("%.4f calls each, seed %d", calls, seed)
		}
	})
}
