package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// slotStore is a store whose calls take time and fail, and whose counters can be lost.
type slotStore struct {
	mu    sync.Mutex
	inner *memstore.Store
	rand  *rand.Rand
	calls atomic.Int64
	// latency is how long a call takes at most. lossy is the fraction of calls without a response: the store has recorded some of
	// them, will record some later, and never records the others. down rejects all calls.
	latency time.Duration
	lossy   float64
	down    atomic.Bool
	fate    float64         // of all calls, in place of a random one, if lossy is 1
	holders map[uint64]bool // of charges, see countHolders
}

// What happens to a call if all are lossy.
const (
	notRecorded = iota/3. + 0.1
	recordedLate
	recorded
)

func newSlotStore(seed uint64) *slotStore {
	return &slotStore{inner: memstore.New(memstore.Options{}), rand: rand.New(rand.NewPCG(seed, 1)), latency: time.Millisecond, holders: map[uint64]bool{}}
}

func (s *slotStore) Shard(headgate.Subject) int { return 0 }

// flush loses all counters.
func (s *slotStore) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inner = memstore.New(memstore.Options{})
}

// countHolders returns how many holders charges had since the last call.
func (s *slotStore) countHolders() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.holders)
	clear(s.holders)
	return n
}

// lose sets the fraction of calls without a response.
func (s *slotStore) lose(fraction float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lossy = fraction
}

func (s *slotStore) draw() (inner *memstore.Store, there, back time.Duration, fate, lossy float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	half := func() time.Duration { return time.Duration(s.rand.Int64N(int64(s.latency)/2 + 1)) }
	fate = s.rand.Float64()
	if s.lossy == 1 {
		fate = s.fate
	}
	return s.inner, half(), half(), fate, s.lossy
}

func (s *slotStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	s.calls.Add(1)
	s.mu.Lock()
	for i := range charges {
		s.holders[charges[i].Holder] = true
	}
	s.mu.Unlock()
	fail := func(err error) error {
		for i := range results {
			results[i] = headgate.Result{Err: err}
		}
		return err
	}
	if s.down.Load() {
		return fail(headgate.ErrUnavailable)
	}
	_, there, back, fate, lossy := s.draw()
	time.Sleep(there)
	inner, _, _, _, _ := s.draw()
	unanswered := fmt.Errorf("%w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered)
	switch {
	case fate < lossy/3: // not recorded
		time.Sleep(10 * time.Millisecond)
		return fail(unanswered)
	case fate < lossy*2/3: // recorded late
		late := append([]headgate.Charge(nil), charges...)
		time.AfterFunc(15*time.Millisecond, func() { _ = inner.Take(ctx, late, make([]headgate.Result, len(late))) })
		time.Sleep(10 * time.Millisecond)
		return fail(unanswered)
	case fate < lossy: // recorded
		_ = inner.Take(ctx, charges, results)
		time.Sleep(10 * time.Millisecond)
		return fail(unanswered)
	}
	err := inner.Take(ctx, charges, results)
	time.Sleep(back)
	return err
}

// slotFleet is nodes that share a concurrency limit.
type slotFleet struct {
	*testing.T
	store *slotStore
	nodes []*headgate.Limiter
	limit headgate.Limit

	mu       sync.Mutex
	inFlight int64
	highest  int64
	onNode   []int64 // in flight or about to be
	peaks    []int64 // of onNode
	admitted int64
	denied   int64
}

const slotTenant = "acme"

var slotRequest = headgate.Request{Attributes: headgate.Attributes{"tenant": slotTenant}}

func newSlotFleet(t *testing.T, seed uint64, nodes int, limit headgate.Limit, change ...func(*headgate.Rule)) *slotFleet {
	t.Helper()
	f := &slotFleet{T: t, store: newSlotStore(seed), limit: limit}
	rule := headgate.Rule{ID: "exports", By: []string{"tenant"}, Limit: limit, Cost: headgate.Cost{Max: 10}}
	for _, c := range change {
		c(&rule)
	}
	for range nodes {
		l, err := headgate.New(f.store, rule)
		if err != nil {
			t.Fatal(err)
		}
		f.nodes = append(f.nodes, l)
	}
	f.onNode, f.peaks = make([]int64, nodes), make([]int64, nodes)
	return f
}

// request begins a request on a node, and ends it after a while.
func (f *slotFleet) request(node int, cost int64, length time.Duration) {
	req := slotRequest
	req.Cost = cost
	f.mu.Lock()
	f.onNode[node] += cost
	f.peaks[node] = max(f.peaks[node], f.onNode[node])
	f.mu.Unlock()
	d, err := f.nodes[node].Begin(f.Context(), req)
	if err != nil {
		f.Error(err)
	}
	f.count(d.Allowed, cost)
	if d.Allowed {
		time.Sleep(length)
	}
	f.mu.Lock()
	f.onNode[node] -= cost
	if d.Allowed {
		f.inFlight -= cost
	}
	f.mu.Unlock()
	d.Done(headgate.Outcome{})
}

func (f *slotFleet) count(allowed bool, cost int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !allowed {
		f.denied++
		return
	}
	f.admitted++
	f.inFlight += cost
	f.highest = max(f.highest, f.inFlight)
}

// now returns how many units are in flight.
func (f *slotFleet) now() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inFlight
}

// used returns how many units the store has recorded.
func (f *slotFleet) used() int64 {
	f.Helper()
	f.store.mu.Lock()
	inner := f.store.inner
	f.store.mu.Unlock()
	c := headgate.Charge{Subject: headgate.SubjectOf("tenant", slotTenant), Counter: headgate.CounterOf("exports", "", headgate.Concurrency), Limit: f.limit}
	results := make([]headgate.Result, 1)
	if err := inner.Take(f.Context(), []headgate.Charge{c}, results); err != nil {
		f.Fatal(err)
	}
	return f.limit.Count - results[0].Remaining
}

// expectUsed checks that the store has recorded what is in flight.
func (f *slotFleet) expectUsed(when string) {
	f.Helper()
	synctest.Wait()
	if used, inFlight := f.used(), f.now(); used != inFlight {
		f.Errorf("%s the store counts %d, %d are in flight", when, used, inFlight)
	}
}

// load sends random requests from all nodes for a time. stop waits for the last of them.
func (f *slotFleet) load(seed uint64, length, pause, mean time.Duration, maxCost int64) (stop func()) {
	var all sync.WaitGroup
	until := time.Now().Add(length)
	for node := range f.nodes {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(node)))
			for time.Now().Before(until) {
				cost, length := 1+random.Int64N(maxCost), time.Duration(random.ExpFloat64()*float64(mean))
				all.Go(func() { f.request(node, cost, length) })
				time.Sleep(time.Duration(random.ExpFloat64() * float64(pause)))
			}
		})
	}
	return all.Wait
}

// slotSeeds returns how many seeds to try: fewer in short tests.
func slotSeeds(n uint64) uint64 {
	if testing.Short() {
		return max(4, n/5)
	}
	return n
}

// TestBeginNeverExceeds sends more than a limit allows from several nodes: without faults, the limit is never exceeded, and it is
// used up. In the end, nothing is counted.
func TestBeginNeverExceeds(t *testing.T) {
	t.Parallel()
	for seed := range slotSeeds(8) {
		for _, limit := range []int64{1, 5, 20, 200} {
			synctest.Test(t, func(t *testing.T) {
				rate := headgate.Concurrent(limit)
				rate.Window = time.Second // so that it is renewed while operations are on their way
				f := newSlotFleet(t, seed, 4, rate, func(r *headgate.Rule) { r.Strict = seed%4 == 3 })
				f.store.latency = 20 * time.Millisecond
				f.load(seed, 5*time.Second, 10*time.Second/time.Duration(limit*40), 100*time.Millisecond, min(limit, 3))()
				if f.highest > limit {
					t.Errorf("seed %d: %d in flight of %d", seed, f.highest, limit)
				}
				if f.denied == 0 || 10*f.highest < 9*limit-20 {
					t.Errorf("seed %d, limit %d: at most %d in flight, %d admitted, %d denied", seed, limit, f.highest, f.admitted, f.denied)
				}
				time.Sleep(3 * 100 * time.Millisecond)
				f.expectUsed(fmt.Sprintf("seed %d, limit %d: in the end", seed, limit))
			})
		}
	}
}

// TestBeginRepairs loses responses, calls and counters: five seconds later, the store counts what is in flight.
func TestBeginRepairs(t *testing.T) {
	t.Parallel()
	for seed := range slotSeeds(20) {
		synctest.Test(t, func(t *testing.T) {
			f := newSlotFleet(t, seed, 3, headgate.Concurrent(100))
			stop := f.load(seed, 20*time.Second, 5*time.Millisecond, 200*time.Millisecond, 3)
			f.store.lose(0.2)
			time.Sleep(3 * time.Second)
			f.store.down.Store(true)
			time.Sleep(time.Second)
			f.store.down.Store(false)
			f.store.flush()
			time.Sleep(time.Second)
			f.store.lose(0)
			time.Sleep(5 * time.Second)
			repaired := f.compare(2 * time.Second)
			if repaired > 0 {
				t.Errorf("seed %d: the store differs by up to %d from what is in flight, five seconds after the last fault", seed, repaired)
			}
			stop()
			time.Sleep(time.Second)
			f.expectUsed(fmt.Sprintf("seed %d: in the end", seed))
		})
	}
}

// TestBeginDetects loses responses, calls and counters under leases that are too long to be renewed: what is wrong must be noticed by the
// replies, and repaired soon.
func TestBeginDetects(t *testing.T) {
	t.Parallel()
	for seed := range slotSeeds(40) {
		for name, fault := range map[string]func(*slotStore){
			"lost responses": func(s *slotStore) { s.lose(0.3) },
			"outage":         func(s *slotStore) { s.down.Store(true) },
			"flush":          func(s *slotStore) { s.flush() },
		} {
			synctest.Test(t, func(t *testing.T) {
				limit := headgate.Concurrent(1000)
				limit.Window = time.Hour
				f := newSlotFleet(t, seed, 2, limit, func(r *headgate.Rule) { r.Strict = seed%2 == 0 })
				pause := time.Millisecond + 3*time.Millisecond*time.Duration(seed%4)
				stop := f.load(seed, 5*time.Second, pause, 300*time.Millisecond, 3)
				time.Sleep(time.Second)
				fault(f.store)
				time.Sleep(500 * time.Millisecond)
				f.store.lose(0)
				f.store.down.Store(false)
				time.Sleep(1500 * time.Millisecond)
				if differs := f.compare(time.Second); differs > 0 {
					t.Errorf("seed %d: the store differs by up to %d from what is in flight, soon after: %s", seed, differs, name)
				}
				stop()
				time.Sleep(time.Second)
				f.expectUsed(fmt.Sprintf("seed %d: after the last request and: %s,", seed, name))
				for _, l := range f.nodes {
					if err := l.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// TestBeginLosesResponse loses the response to one operation while nothing else happens: the store counts what is in flight soon after.
func TestBeginLosesResponse(t *testing.T) {
	t.Parallel()
	for fate, name := range map[float64]string{notRecorded: "not recorded", recordedLate: "recorded late", recorded: "recorded"} {
		for _, onFailure := range []headgate.OnStoreFailure{headgate.FailAllow, headgate.FailDeny} {
			for _, loses := range []string{"begin", "done", "both"} {
				synctest.Test(t, func(t *testing.T) {
					limit := headgate.Concurrent(10)
					limit.Window = time.Hour
					f := newSlotFleet(t, 1, 1, limit, func(r *headgate.Rule) { r.OnStoreFailure = onFailure })
					f.store.fate = fate
					lose := func(when string, do func()) {
						if loses == when || loses == "both" {
							f.store.lose(1)
						}
						do()
						time.Sleep(15 * time.Millisecond)
						f.store.lose(0)
						time.Sleep(1100 * time.Millisecond)
						f.expectUsed(fmt.Sprintf("after %s with %s %s, %s:", when, loses, name, onFailure))
					}
					var d headgate.Decision
					lose("begin", func() {
						d, _ = f.nodes[0].Begin(t.Context(), slotRequest)
						if d.Allowed {
							f.inFlight++
						}
					})
					lose("done", func() {
						d.Done(headgate.Outcome{})
						f.inFlight = 0
						time.Sleep(120 * time.Millisecond) // until the unit is no longer kept
					})
				})
			}
		}
	}
}

// TestBeginWithoutStore checks that requests that were admitted without the store are counted when it is back.
func TestBeginWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.Concurrent(10)
		limit.Window = time.Hour
		f := newSlotFleet(t, 1, 1, limit)
		var all sync.WaitGroup
		for i := range 5 {
			f.store.down.Store(i >= 2)
			all.Go(func() { f.request(0, 1, 10*time.Second) })
			time.Sleep(100 * time.Millisecond)
		}
		f.store.down.Store(false)
		time.Sleep(600 * time.Millisecond)
		f.expectUsed("after the outage")
		f.store.flush()
		all.Go(func() { f.request(0, 1, 10*time.Second) })
		time.Sleep(100 * time.Millisecond)
		f.expectUsed("after a flush and one request")
		all.Wait()
		time.Sleep(time.Second)
		f.expectUsed("in the end")
	})
}

// TestBeginReusesOnlyStored checks that units that were admitted without the store are not used again until the store has them: a
// request that uses kept units counts as the store's decision.
func TestBeginReusesOnlyStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newSlotFleet(t, 1, 1, headgate.Concurrent(10))
		first, _ := f.nodes[0].Begin(t.Context(), slotRequest)
		f.store.down.Store(true)
		d, _ := f.nodes[0].Begin(t.Context(), slotRequest)
		if !d.Allowed {
			t.Fatal("denied without the store")
		}
		synctest.Wait()
		f.store.down.Store(false)
		d.Done(headgate.Outcome{})
		d, err := f.nodes[0].Begin(t.Context(), slotRequest)
		if err != nil || d.Path != headgate.PathStore {
			t.Errorf("a request after the outage: decided by %s, error %v", d.Path, err)
		}
		d.Done(headgate.Outcome{})
		first.Done(headgate.Outcome{})
		time.Sleep(2 * time.Second)
		f.expectUsed("in the end")
	})
}

// TestBeginMoves loses responses on a busy counter, so that requests use one holder after another, and some of them last. In the end
// they all belong to one holder again, and in the meantime the store never counts less than is in flight.
func TestBeginMoves(t *testing.T) {
	t.Parallel()
	for seed := range slotSeeds(20) {
		synctest.Test(t, func(t *testing.T) {
			limit := headgate.Concurrent(1000)
			if seed%2 == 1 {
				limit.Window = time.Second // so that responses to moves are lost as well
			}
			f := newSlotFleet(t, seed, 1, limit)
			var lasting sync.WaitGroup
			stop := f.load(seed, 5*time.Second, 2*time.Millisecond, 20*time.Millisecond, 3)
			f.store.lose(0.3)
			for range 50 {
				lasting.Go(func() { f.request(0, 1, time.Minute) })
				time.Sleep(100 * time.Millisecond)
			}
			f.store.lose(0)
			stop()
			time.Sleep(2 * time.Second) // until the store's count is right
			several := f.store.countHolders()
			for range 20_000 {
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if used, inFlight := f.used(), f.now(); used < inFlight {
					t.Fatalf("seed %d: the store counts %d, %d are in flight", seed, used, inFlight)
				}
			}
			f.expectUsed(fmt.Sprintf("seed %d: while requests last", seed))
			f.store.countHolders()
			time.Sleep(10 * time.Second)
			if one := f.store.countHolders(); several < 3 || one != 1 {
				t.Errorf("seed %d: %d holders, later %d: must be several, and one", seed, several, one)
			}
			lasting.Wait()
			time.Sleep(2 * time.Second)
			f.expectUsed(fmt.Sprintf("seed %d: in the end", seed))
		})
	}
}

// inUseStore remembers what the last charge said is in use.
type inUseStore struct {
	*slotStore
	last headgate.Charge
}

func (s *inUseStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	s.last = charges[0]
	return s.slotStore.Take(ctx, charges, results)
}

// TestBeginInUse checks that a charge says what is in use on the node, including the kept units that the request itself uses: without
// the store, the whole request must fit the node's share.
func TestBeginInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &inUseStore{slotStore: newSlotStore(1)}
		rule := headgate.Rule{ID: "exports", By: []string{"tenant"}, Limit: headgate.Concurrent(20), Cost: headgate.Cost{Max: 10}}
		l, err := headgate.New(store, rule)
		if err != nil {
			t.Fatal(err)
		}
		begin := func(cost int64) headgate.Decision {
			d, _ := l.Begin(t.Context(), headgate.Request{Attributes: slotRequest.Attributes, Cost: cost})
			return d
		}
		first, second := begin(3), begin(2)
		second.Done(headgate.Outcome{})
		third := begin(5)
		if c := store.last; c.Cost != 3 || c.InUse != 5 {
			t.Errorf("with 3 in use and 2 kept, a request for 5 charges %d and says that %d are in use", c.Cost, c.InUse)
		}
		first.Done(headgate.Outcome{})
		third.Done(headgate.Outcome{})
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestBeginRenews renews leases while requests begin and end, over a slow connection: the store never counts less than is in flight.
func TestBeginRenews(t *testing.T) {
	t.Parallel()
	for seed := range slotSeeds(10) {
		synctest.Test(t, func(t *testing.T) {
			limit := headgate.Concurrent(1000)
			limit.Window = time.Second
			f := newSlotFleet(t, seed, 1, limit, func(r *headgate.Rule) { r.Strict = true })
			f.store.latency = 150 * time.Millisecond
			stop := f.load(seed, 20*time.Second, 400*time.Millisecond, 3*time.Second, 1)
			for range 20_000 {
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if used, inFlight := f.used(), f.now(); used < inFlight {
					t.Fatalf("seed %d: the store counts %d, %d are in flight", seed, used, inFlight)
				}
			}
			stop()
			time.Sleep(time.Second)
			f.expectUsed("in the end")
		})
	}
}

// TestBeginExpired checks that units are not used again after a node could not renew their lease.
func TestBeginExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.Concurrent(100)
		limit.Window = time.Second
		f := newSlotFleet(t, 1, 1, limit, func(r *headgate.Rule) { r.OnStoreFailure = headgate.FailDeny })
		d, err := f.nodes[0].Begin(t.Context(), slotRequest)
		if err != nil || !d.Allowed {
			t.Fatalf("%+v: %v", d, err)
		}
		f.store.down.Store(true)
		time.Sleep(5 * time.Second)
		d.Done(headgate.Outcome{})
		if d, err := f.nodes[0].Begin(t.Context(), slotRequest); err != nil || d.Allowed {
			t.Errorf("%+v: %v", d, err)
		}
		f.store.down.Store(false)
		time.Sleep(time.Second)
		f.expectUsed("in the end")
	})
}

// compare returns by how much the store's count is below what is in flight, or above the most that was in flight on each node in the
// time that units may be kept, at the worst.
func (f *slotFleet) compare(length time.Duration) (differs int64) {
	f.Helper()
	const every, recently = 5 * time.Millisecond, 150 * time.Millisecond
	history := make([][]int64, len(f.nodes)) // peaks by node
	used := int64(0)
	for i := range length / every {
		time.Sleep(every)
		synctest.Wait()
		f.mu.Lock()
		highest := int64(0)
		for node := range f.nodes {
			history[node] = append(history[node], f.peaks[node])
			f.peaks[node] = f.onNode[node]
			if i > recently/every {
				history[node] = history[node][1:]
			}
			highest += slices.Max(history[node])
		}
		if i > recently/every {
			differs = max(differs, used-highest) // requests that the store has admitted are in flight a little later
		}
		used = f.used()
		differs = max(differs, f.inFlight-used)
		f.mu.Unlock()
	}
	return differs
}

// TestBeginAfterKill checks that the units of a node that is killed are available after its lease, and those of others stay.
func TestBeginAfterKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newSlotFleet(t, 1, 2, headgate.Concurrent(20))
		killed := newSlotStore(2)
		killed.inner = f.store.inner
		l, err := headgate.New(killed, headgate.Rule{ID: "exports", By: []string{"tenant"}, Limit: f.limit, Cost: headgate.Cost{Max: 10}})
		if err != nil {
			t.Fatal(err)
		}
		f.nodes[1] = l
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { f.request(i%2, 1, time.Minute) })
		}
		time.Sleep(30 * time.Second)
		if f.used() != 20 {
			t.Fatalf("%d in use", f.used())
		}
		killed.down.Store(true)
		time.Sleep(f.limit.Window * 2 / 3 * 9 / 10)
		if f.used() != 20 {
			t.Errorf("%d in use before the lease has ended", f.used())
		}
		time.Sleep(f.limit.Window/3 + f.limit.Window/10)
		if f.used() != 10 {
			t.Errorf("%d in use after the lease has ended", f.used())
		}
		killed.down.Store(false)
		all.Wait()
		time.Sleep(time.Second)
	})
}

// TestBeginKeepsUnits checks that a counter far below its limit needs few calls to the store, and gives kept units back.
func TestBeginKeepsUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newSlotFleet(t, 1, 1, headgate.Concurrent(200))
		f.load(1, 10*time.Second, time.Millisecond, 20*time.Millisecond, 1)()
		if calls := f.store.calls.Load(); 10*calls > f.admitted || f.denied > 0 {
			t.Errorf("%d calls for %d requests, %d denied", calls, f.admitted, f.denied)
		}
		time.Sleep(100 * time.Millisecond)
		f.expectUsed("after 100 ms")
	})
}

// TestBeginIdle checks that a request in flight costs three calls per lease, and that nothing runs after its end.
func TestBeginIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newSlotFleet(t, 1, 1, headgate.Concurrent(20))
		f.request(0, 1, 100*time.Second)
		time.Sleep(time.Second)
		f.expectUsed("in the end")
		if calls := f.store.calls.Load(); calls < 30 || calls > 33 {
			t.Errorf("%d calls in ten leases", calls)
		}
	})
}

// TestDone checks that Done counts once, and that it may be called for any decision.
func TestDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newSlotFleet(t, 1, 1, headgate.Concurrent(2))
		l := f.nodes[0]
		begin := func(allowed bool) headgate.Decision {
			d, err := l.Begin(t.Context(), slotRequest)
			if err != nil || d.Allowed != allowed {
				t.Fatalf("%+v: %v", d, err)
			}
			return d
		}
		first, second, denied := begin(true), begin(true), begin(false)
		if denied.RetryAfter != time.Second || denied.DeniedBy().RetryAfter != headgate.Unknown || denied.Path != headgate.PathStore {
			t.Errorf("%+v", denied)
		}
		if !first.Holds() || denied.Holds() {
			t.Errorf("an allowed request holds units: %t, a denied one: %t", first.Holds(), denied.Holds())
		}
		denied.Done(headgate.Outcome{})
		(&headgate.Decision{}).Done(headgate.Outcome{})
		second.Done(headgate.Outcome{})
		second.Done(headgate.Outcome{})
		copied := second
		copied.Done(headgate.Outcome{})
		time.Sleep(200 * time.Millisecond)
		f.inFlight = 1
		f.expectUsed("after one of two")
		begin(true)
		begin(false)
		_ = first
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		f.inFlight = 0
		f.expectUsed("after Close")
	})
}

// TestOnDone checks that Done calls the function of OnDone once, also for a copy of the decision.
func TestOnDone(t *testing.T) {
	t.Parallel()
	var d headgate.Decision
	var calls []headgate.Outcome
	d.OnDone(func(o headgate.Outcome) { calls = append(calls, o) })
	copied := d
	if !d.Holds() || !copied.Holds() {
		t.Error("the decision holds nothing")
	}
	copied.Done(headgate.Outcome{Status: 200})
	d.Done(headgate.Outcome{Status: 500})
	if len(calls) != 1 || calls[0].Status != 200 {
		t.Errorf("calls %+v", calls)
	}
}

// TestCloseWithoutStore checks that Close does not wait longer than its context for a store that is unavailable.
func TestCloseWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newSlotFleet(t, 1, 1, headgate.Concurrent(2))
		if _, err := f.nodes[0].Begin(t.Context(), slotRequest); err != nil {
			t.Fatal(err)
		}
		f.store.down.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.nodes[0].Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Second) // the store does not return, and nothing waits for it
	})
}

// TestOnlyBeginAppliesConcurrency checks that the other methods skip concurrency limits, and say so.
func TestOnlyBeginAppliesConcurrency(t *testing.T) {
	t.Parallel()
	f := newSlotFleet(t, 1, 1, headgate.Concurrent(1))
	l := f.nodes[0]
	for range 3 {
		d, err := l.Check(t.Context(), slotRequest)
		if err != nil || !d.Allowed || len(d.Limits) != 0 || len(d.Skipped) != 1 || d.Skipped[0] != "exports" {
			t.Errorf("%+v: %v", d, err)
		}
	}
	d, err := l.Begin(t.Context(), slotRequest)
	if err != nil || !d.Allowed || len(d.Skipped) != 0 || d.Limits[0].Remaining != 0 {
		t.Errorf("%+v: %v", d, err)
	}
	if peek, err := l.Peek(t.Context(), slotRequest); err != nil || peek.Allowed || peek.RetryAfter != headgate.Unknown {
		t.Errorf("%+v: %v", peek, err)
	}
	if explained, err := l.Explain(t.Context(), slotRequest); err != nil || explained.Decision.Allowed {
		t.Errorf("%+v: %v", explained, err)
	}
	d.Done(headgate.Outcome{Status: 200})
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
