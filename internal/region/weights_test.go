package region

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// weighing is how weights change in a scenario.
type weighing struct {
	// loss is the probability that a call of a server to its own region's tables fails; the write may have happened.
	loss float64
	// isolated is whether a node cannot read the tables of any region.
	isolated func(region, node int, at time.Duration) bool
	// change runs while requests are sent, and makes changes.
	change func(ctx context.Context, w *world)
	// mutate changes what a region keeps, to break the protocol.
	mutate func(r *record, region int, at int64)
	// always makes nodes use their shares although they cannot read the tables.
	always bool
}

// simKeeper keeps the tables of a region, as seen by one of its nodes.
type simKeeper struct {
	*simTables
	node int
}

// simTables is the shared part of a region's keepers.
type simTables struct {
	mu      sync.Mutex
	world   *world
	region  int
	skew    time.Duration
	members []Member
	text    string
}

func (k *simKeeper) SwapWeights(ctx context.Context, _, old, replacement string) (string, time.Time, error) {
	w, weigh := k.world, k.world.weigh
	time.Sleep(time.Duration(w.float() * float64(5*time.Millisecond)))
	if weigh.isolated != nil && weigh.isolated(k.region, k.node, time.Since(w.start)) {
		<-ctx.Done()
		return "", time.Time{}, ctx.Err()
	}
	lost := w.chance(weigh.loss)
	if lost && w.chance(0.5) {
		<-ctx.Done()
		return "", time.Time{}, ctx.Err()
	}
	k.mu.Lock()
	at := time.Now().Add(k.skew)
	if k.text == old {
		k.text = replacement
	}
	if weigh.mutate != nil {
		r, _ := decodeRecord(k.text, k.members)
		weigh.mutate(&r, k.region, at.UnixMicro())
		k.text = r.encode()
	}
	text := k.text
	k.mu.Unlock()
	if lost {
		<-ctx.Done()
		return "", time.Time{}, ctx.Err()
	}
	return text, at, nil
}

// nodeWire is the network from one node to another region.
type nodeWire struct {
	wire
	node int
}

// PullWeights implements [Puller]. An isolated node reaches no other region, either.
func (l nodeWire) PullWeights(ctx context.Context, digest string) (string, error) {
	w := l.world
	isolated := w.weigh.isolated != nil && w.weigh.isolated(l.from, l.node, time.Since(w.start))
	if isolated || !w.travel(ctx, l.from, l.to) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	nodes := w.tables[l.to]
	text := nodes[int(w.float()*float64(len(nodes)))].Tables(digest)
	if !w.travel(ctx, l.to, l.from) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return text, nil
}

// openWeights makes the nodes of a region follow its tables.
func (w *world) openWeights(region int, members []Member, skew time.Duration) {
	if w.weigh == nil {
		return
	}
	tables := &simTables{world: w, region: region, skew: skew, members: members}
	var all []*Weights
	for n, shares := range w.shares[region] {
		peers := map[string]Puller{}
		for j := range members {
			if j != region {
				peers[members[j].Name] = nodeWire{wire{w, region, j}, n}
			}
		}
		all = append(all, NewWeights(shares, &simKeeper{tables, n}, peers, slog.New(slog.DiscardHandler)))
	}
	w.tables = append(w.tables, all)
}

// startWeighing starts the nodes' reading of tables, and the changes.
func (w *world) startWeighing() (stop func()) {
	if w.weigh == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, nodes := range w.tables {
		for _, node := range nodes {
			running.Go(func() { node.Run(ctx) })
		}
	}
	running.Go(func() { w.weigh.change(ctx, w) })
	return func() {
		cancel()
		running.Wait()
	}
}

// weightsScenario returns a random scenario in which weights change.
func weightsScenario(seed uint64, algorithm headgate.Algorithm) *scenario {
	s := randomScenario(seed, algorithm)
	r := rand.New(rand.NewPCG(seed, 7))
	s.length = 100 * time.Second
	s.limit.Count = int64(30 + r.IntN(600))
	s.limit.Window = time.Duration(1+r.IntN(8)) * time.Second
	if algorithm == headgate.TokenBucket {
		s.limit.Burst = s.limit.Count * int64(1+r.IntN(3)) / int64(1+r.IntN(3))
	}
	rate := min(1.5*float64(s.limit.Capacity())/s.limit.Window.Seconds(), 150)
	phase := time.Duration(1+r.IntN(10)) * time.Second
	turn := r.IntN(len(s.weights))
	s.load = func(at time.Duration) []float64 { // all of them at times, or one after the other
		all := make([]float64, len(s.weights))
		for i := range all {
			if n := int(at/phase) + turn; n%3 == 0 || n%len(all) == i {
				all[i] = rate
			}
		}
		return all
	}
	s.loss /= 2
	from, until, isolated := time.Duration(r.IntN(60))*time.Second, time.Duration(r.IntN(20))*time.Second, r.IntN(3)
	s.weigh = &weighing{
		loss: r.Float64() * 0.2,
		isolated: func(_, node int, at time.Duration) bool {
			return node == isolated && at >= from && at < from+until
		},
		change: randomChanges(seed, 1+r.IntN(2)),
	}
	return s
}

// randomChanges returns changes by several operators, each of which may be interrupted at any step.
func randomChanges(seed uint64, operators int) func(context.Context, *world) {
	return func(ctx context.Context, w *world) {
		var running sync.WaitGroup
		for operator := range operators {
			r := rand.New(rand.NewPCG(seed, uint64(operator)+50))
			running.Go(func() {
				for ctx.Err() == nil {
					pause(ctx, time.Duration(r.IntN(25))*time.Second)
					weights := map[string]int64{}
					for i := range w.weights {
						weights[fmt.Sprint("r", i)] = int64(r.IntN(5)) * int64(r.IntN(5))
					}
					nodes := w.tables[r.IntN(len(w.tables))]
					step, cancel := ctx, context.CancelFunc(func() {})
					if r.IntN(3) == 0 { // it dies
						step, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(800))*time.Millisecond)
					}
					_, _ = nodes[r.IntN(len(nodes))].Change(step, weights, nil) // it may fail
					cancel()
				}
			})
		}
		running.Wait()
	}
}

// TestWeightsNeverExceeded changes weights in random scenarios.
func TestWeightsNeverExceeded(t *testing.T) {
	for _, algorithm := range []headgate.Algorithm{headgate.FixedWindow, headgate.SlidingWindow, headgate.TokenBucket} {
		t.Run(algorithm.String(), func(t *testing.T) {
			first, n := rand.Uint64(), scenarios(t)
			worst, used, changes := 0.0, 0.0, 0
			for i := range n {
				s := weightsScenario(first+uint64(i), algorithm)
				change := s.weigh.change
				s.weigh.change = func(ctx context.Context, w *world) {
					change(ctx, w)
					for _, table := range w.tables[0][0].record.Tables {
						if table.Since > 0 {
							changes++
						}
					}
				}
				o := s.run(t)
				worst, used = max(worst, o.over), used+o.used/float64(n)
				if o.over > 1 {
					t.Errorf("seed %d, %s in %d regions: %.4f of the limit were granted", s.seed, s.limit, len(s.weights), o.over)
				}
			}
			t.Logf("%d scenarios from seed %d: at most %.4f of the limit, %.3f used on average, %d changes in force", n, first, worst, used, changes)
			if changes < n/2 {
				t.Errorf("%d changes were in force, want at least %d", changes, n/2)
			}
		})
	}
}

// ackAll acknowledges a table for regions that have not.
func ackAll(t *table, at int64) {
	for _, name := range t.missing() {
		t.add(&table{Acks: map[string]int64{name: at}})
	}
}

// TestWeightsMutants breaks one rule after the other, and expects the simulator to detect each.
func TestWeightsMutants(t *testing.T) {
	for _, m := range []struct {
		name     string
		scenario func(seed uint64) *scenario
		mutate   func(r *record, region int, at int64)
	}{
		{"regions that grow before all have acknowledged", lateRegion, func(r *record, _ int, at int64) {
			for i := range r.Tables {
				ackAll(&r.Tables[i], at)
			}
		}},
		{"regions that grow if a majority has acknowledged", lateRegion, func(r *record, _ int, at int64) {
			for i := range r.Tables {
				if t := &r.Tables[i]; 2*len(t.Acks) > len(t.Weights) {
					ackAll(t, at)
				}
			}
		}},
		{"a region that acknowledges a table and does not use it", moved(headgate.FixedWindow), func(r *record, region int, at int64) {
			for i := range r.Tables {
				if region == 0 {
					r.Tables[i].Weights = map[string]int64{"r0": 8, "r1": 1, "r2": 1}
				}
				ackAll(&r.Tables[i], at)
			}
		}},
		{"a server that uses its share although it cannot read the tables", slowServer, nil},
		{"no wait until a window ends", moved(headgate.FixedWindow), noWait},
		{"no wait until a sliding window ends", moved(headgate.SlidingWindow), noWait},
		{"no wait until a bucket refills", moved(headgate.TokenBucket), noWait},
		{"clocks of other regions are ignored", ahead, func(r *record, region int, at int64) {
			for i := range r.Tables {
				r.Tables[i].Since = min(r.Tables[i].Since, at)
			}
		}},
		{"a newer table makes an older one lapse at once", againAndAgain, func(r *record, _ int, _ int64) {
			if n := len(r.Tables); n > 1 {
				r.Tables = r.Tables[n-1:]
				r.Tables[0].Since = max(r.Tables[0].Since, 1)
			}
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 10; seed++ {
				s := m.scenario(seed)
				if o := s.run(t); o.over > 1 {
					t.Fatalf("seed %d: %.3f of the limit were granted without the mutation", seed, o.over)
				}
				s = m.scenario(seed)
				s.weigh.mutate, s.weigh.always = m.mutate, m.mutate == nil
				if o := s.run(t); o.over > 1 {
					t.Logf("seed %d: %.3f of the limit were granted", seed, o.over)
					return
				}
			}
			t.Error("not detected")
		})
	}
}

func noWait(r *record, _ int, _ int64) {
	for i := range r.Tables {
		r.Tables[i].Since = min(r.Tables[i].Since, 1)
	}
}

// moved returns scenarios in which most of the weight moves from one region to another after 35 s, and all regions use all they get.
func moved(algorithm headgate.Algorithm) func(uint64) *scenario {
	return func(seed uint64) *scenario {
		l := headgate.Limit{Algorithm: algorithm, Count: 300, Window: 30 * time.Second}
		switch algorithm {
		case headgate.SlidingWindow:
			l.Align, l.Window = headgate.OnClock, time.Minute
		case headgate.FixedWindow:
			l.Align = headgate.OnClock
		}
		return &scenario{
			seed: seed, limit: l, weights: []int64{8, 1, 1}, nodes: 2, length: 2 * time.Minute, oneWay: wan, load: steady(30, 30, 30),
			weigh: &weighing{change: changeAt(35*time.Second, map[string]int64{"r0": 1, "r1": 8})},
		}
	}
}

func steady(rates ...float64) load { return func(time.Duration) []float64 { return rates } }

// changeAt makes one change by a server of the last region.
func changeAt(at time.Duration, weights map[string]int64) func(context.Context, *world) {
	return func(ctx context.Context, w *world) {
		pause(ctx, at)
		for ctx.Err() == nil {
			if _, err := w.tables[len(w.tables)-1][0].Change(ctx, weights, nil); err == nil {
				return
			}
		}
	}
}

// lateRegion returns scenarios in which the region that loses weight is cut off just after the change begins.
func lateRegion(seed uint64) *scenario {
	s := moved(headgate.FixedWindow)(seed)
	s.cut = func(from, to int, at time.Duration) bool {
		return (from == 0 || to == 0) && at > 35*time.Second+400*time.Millisecond
	}
	return s
}

// slowServer returns scenarios in which a server of the region that loses weight cannot read its tables for twenty seconds.
func slowServer(seed uint64) *scenario {
	s := moved(headgate.FixedWindow)(seed)
	s.limit.Window, s.limit.Count, s.load = time.Second, 60, steady(60, 60, 60)
	s.weigh.isolated = func(region, node int, at time.Duration) bool {
		return region == 0 && node == 1 && at > 35*time.Second && at < 55*time.Second
	}
	return s
}

// ahead returns scenarios in which the clock of the region that loses weight is ahead.
func ahead(seed uint64) *scenario {
	s := moved(headgate.FixedWindow)(seed)
	s.skew = []time.Duration{30 * time.Second, 0, 0}
	return s
}

// againAndAgain returns scenarios with a change back before the first has lapsed.
func againAndAgain(seed uint64) *scenario {
	s := moved(headgate.FixedWindow)(seed)
	s.limit.Window = 10 * time.Second
	s.weigh.change = func(ctx context.Context, w *world) {
		for i := range 8 {
			weights := map[string]int64{"r0": 1, "r1": 8}
			if i%2 == 1 {
				weights = map[string]int64{"r0": 8, "r1": 1}
			}
			changeAt(13*time.Second, weights)(ctx, w)
		}
	}
	return s
}

// TestWeightsGrow expects that regions use their new shares in the end, although the server that made the change dies.
func TestWeightsGrow(t *testing.T) {
	s := moved(headgate.FixedWindow)(1)
	s.noBorrowing, s.length = true, 3*time.Minute
	change := s.weigh.change
	var state WeightsState
	var dead atomic.Bool
	s.weigh.isolated = func(region, node int, _ time.Duration) bool { return dead.Load() && region == 2 && node == 0 }
	s.weigh.change = func(ctx context.Context, w *world) {
		change(ctx, w)
		dead.Store(true)
		pause(ctx, 30*time.Second)
		state = w.tables[0][0].State()
	}
	var granted [3]int64
	for _, g := range s.run(t).grants {
		if g.at >= 2*time.Minute {
			granted[g.region] += g.granted
		}
	}
	if granted[0] > 60 || granted[1] < 480 || granted[2] < 30 || state.Serial != 1 || state.Since.IsZero() {
		t.Errorf("%v were granted in two windows, want a tenth of 600, eight tenths and a tenth: %+v", granted, state)
	}
}

// TestWeightsDead declares a region dead, which returns with its old weights.
func TestWeightsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scenario{seed: 1, weights: []int64{1, 1, 1}, oneWay: wan, weigh: &weighing{}}
		dead := true
		s.cut = func(from, to int, _ time.Duration) bool { return dead && (from == 0 || to == 0) }
		w := &world{scenario: s, random: rand.New(rand.NewPCG(1, 0)), start: time.Now()}
		w.open()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for region := 1; region <= 2; region++ {
			running.Go(func() { w.tables[region][0].Run(ctx) })
		}
		if _, err := w.tables[1][0].Change(ctx, map[string]int64{"r0": 0}, nil); err == nil {
			t.Error("a region that does not respond was drained without --dead")
		}
		if _, err := w.tables[1][0].Change(ctx, nil, []string{"r0"}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if state := w.tables[2][0].State(); state.Since.IsZero() || !state.Regions[0].Dead {
			t.Errorf("not in force: %+v", state)
		}
		l := headgate.PerMinute(300)
		share := func(region int) int64 {
			share := w.shares[region][0].Share(simSubject, &l)
			if share.Count == 0 {
				return 0
			}
			return share.Capacity()
		}
		time.Sleep(2 * time.Minute)
		if share(1)+share(2) < 290 {
			t.Errorf("shares of %d and %d, want nearly 300 together", share(1), share(2))
		}
		if _, err := w.tables[1][0].Change(ctx, map[string]int64{"r1": 2}, nil); err != nil {
			t.Errorf("a change without a region that remains dead: %v", err)
		}
		dead = false
		w.tables[0][0].Learn(ctx)
		if share(0) != 0 {
			t.Errorf("the region returned with a share of %d", share(0))
		}
		running.Go(func() { w.tables[0][0].Run(ctx) })
		if _, err := w.tables[0][0].Change(ctx, map[string]int64{"r0": 1, "r1": 1}, nil); err != nil {
			t.Error(err)
		}
		sum := int64(0)
		for range 300 {
			time.Sleep(time.Second)
			sum = share(0) + share(1) + share(2)
			if sum > 300 {
				t.Fatalf("shares of %d of 300", sum)
			}
		}
		if share(0) < 95 || !slices.Contains([]int64{298, 299, 300}, sum) {
			t.Errorf("restored with a share of %d, %d in total", share(0), sum)
		}
		cancel()
		running.Wait()
	})
}

// noKeeper is a store that is unavailable, and otherTables the tables of another region.
type (
	noKeeper    struct{}
	otherTables string
)

func (noKeeper) SwapWeights(context.Context, string, string, string) (string, time.Time, error) {
	return "", time.Time{}, headgate.ErrUnavailable
}

func (t otherTables) PullWeights(context.Context, string) (string, error) { return string(t), nil }

// TestLearnWithoutStore starts a server of a region that was drained, while the region's store is unavailable: the server decides by
// the share that other regions know.
func TestLearnWithoutStore(t *testing.T) {
	shares := NewShares([]Member{{"eu", 1}, {"us", 1}}, "eu")
	r := record{Tables: []table{{Serial: 1, ID: "a", Weights: map[string]int64{"eu": 0, "us": 1}, Dead: []string{"eu"}, Acks: map[string]int64{"us": 1}}}}
	w := NewWeights(shares, noKeeper{}, map[string]Puller{"us": otherTables(r.encode())}, slog.New(slog.DiscardHandler))
	w.Learn(t.Context())
	whole := headgate.PerMinute(1000)
	if got := shares.Share(simSubject, &whole); got.Count != 0 {
		t.Errorf("the share is %v, want none", got)
	}
}

// TestAdvance follows a table through the states of a region.
func TestAdvance(t *testing.T) {
	r := record{Tables: []table{{Serial: 1, ID: "a", Weights: map[string]int64{"r0": 1, "r1": 0}}}}
	last := func() *table { return &r.Tables[0] }
	r.advance("r0", 1_000)
	if last().Kept != 1_000 || len(last().Acks) > 0 {
		t.Errorf("kept: %+v", last())
	}
	r.advance("r0", 1_000+ackWait-1)
	if len(last().Acks) > 0 {
		t.Errorf("acknowledged before all servers know: %+v", last())
	}
	r.advance("r0", 1_000+ackWait)
	if last().Acks["r0"] != 1_000+ackWait || last().Since != 0 {
		t.Errorf("not acknowledged: %+v", last())
	}
	const later = 1_000_000_000
	r.merge(&record{Tables: []table{{Serial: 1, ID: "a", Acks: map[string]int64{"r1": later}, Since: 1, Kept: 1}}}, false)
	r.advance("r0", 2_000+ackWait)
	if last().Since != later {
		t.Errorf("since %d, want the time of the last acknowledgement, %d", last().Since, later)
	}
	r.Tables = append(r.Tables, table{Serial: 2, ID: "b", Weights: last().Weights, Since: later, Kept: later, Acks: last().Acks})
	r.advance("r0", later+keepTables)
	if len(r.Tables) != 1 || !r.Dropped || last().Serial != 2 {
		t.Errorf("the old table was not dropped: %+v", r)
	}
	r.merge(&record{Tables: []table{{Serial: 1, ID: "a", Weights: last().Weights, Acks: last().Acks}}}, false)
	if len(r.Tables) != 1 {
		t.Errorf("the old table returned: %+v", r)
	}
	r.merge(&record{Tables: []table{{Serial: 2, ID: "a", Weights: last().Weights}}}, false)
	if len(r.Tables) != 1 {
		t.Errorf("an older table was accepted: %+v", r)
	}
}

// TestShareAllocations checks that shares cost no memory, whatever the tables.
func TestShareAllocations(t *testing.T) {
	s := NewShares([]Member{{"a", 1}, {"b", 2}}, "a")
	whole := headgate.PerMinute(1000)
	for _, tables := range [][]table{nil, {{Serial: 1, Weights: map[string]int64{"a": 2, "b": 1}}, {Serial: 2, Weights: map[string]int64{"a": 1, "b": 1}}}} {
		s.use(tables, 1)
		if n := testing.AllocsPerRun(100, func() { s.Share(simSubject, &whole) }); n > 0 {
			t.Errorf("with %d tables: %v allocations", len(tables), n)
		}
	}
}

func BenchmarkShareOfTables(b *testing.B) {
	s := NewShares([]Member{{"a", 1}, {"b", 2}}, "a")
	whole := headgate.PerMinute(1000)
	for name, tables := range map[string][]table{"config": nil, "lapsed": {{Serial: 1, Since: 1, Weights: map[string]int64{"a": 2, "b": 1}}}, "changing": {{Serial: 1, Weights: map[string]int64{"a": 2, "b": 1}}}} {
		s.use(tables, 1<<50)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.Share(simSubject, &whole)
			}
		})
	}
}

// TestDropRepeated drops tables of random records, and expects that no share of any limit is larger after it.
func TestDropRepeated(t *testing.T) {
	members := []Member{{"a", 1}, {"b", 2}, {"c", 1}}
	dropped := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		var full record
		for i := range keepAll + random.IntN(60) {
			o := table{Serial: int64(i + 1), ID: "x", Weights: map[string]int64{"a": int64(1 + random.IntN(3)), "b": int64(random.IntN(2)), "c": 1}}
			if random.IntN(4) > 0 {
				o.Since = int64(i+1) * 1_000_000
			}
			full.Tables = append(full.Tables, o)
		}
		fewer := full.clone()
		fewer.dropRepeated()
		dropped += len(full.Tables) - len(fewer.Tables)
		if bound := max(keepAll, 6); len(fewer.Tables) > bound { // there are 6 different weights
			t.Fatalf("seed %d: %d tables are left, want at most %d", seed, len(fewer.Tables), bound)
		}
		for _, whole := range []headgate.Limit{
			{Algorithm: headgate.FixedWindow, Count: 1000, Window: 5 * time.Second},
			{Algorithm: headgate.SlidingWindow, Count: 1000, Window: time.Minute},
			{Count: 1000, Window: 10 * time.Second, Burst: 500},
		} {
			for _, own := range members {
				before, after := NewShares(members, own.Name), NewShares(members, own.Name)
				at := int64(random.IntN(100)) * 1_000_000
				before.use(full.Tables, at)
				after.use(fewer.Tables, at)
				b, a := before.Share(simSubject, &whole), after.Share(simSubject, &whole)
				if a.Count*int64(b.Window) > b.Count*int64(a.Window) || a.Burst > b.Burst {
					t.Errorf("seed %d: the share of %s was %v, and is %v", seed, own.Name, b, a)
				}
			}
		}
	}
	if dropped < 1000 {
		t.Errorf("only %d tables were dropped", dropped)
	}
}

// memoryKeeper keeps the tables of a region in memory.
type memoryKeeper struct {
	text string
	at   time.Time
}

func (k *memoryKeeper) SwapWeights(_ context.Context, _, old, replacement string) (string, time.Time, error) {
	if k.text == old {
		k.text = replacement
	}
	k.at = k.at.Add(time.Duration(ackWait) * time.Microsecond)
	return k.text, k.at, nil
}

// TestManyChanges changes weights again and again: back and forth without bound, to different ones up to a bound, and for a dead
// region even above it.
func TestManyChanges(t *testing.T) {
	w := NewWeights(NewShares([]Member{{"eu", 1}, {"us", 1}}, "eu"), &memoryKeeper{at: time.Unix(2_000_000_000, 0)}, nil, slog.New(slog.DiscardHandler))
	change := func(eu, us int64, dead ...string) error {
		_, err := w.Change(t.Context(), map[string]int64{"eu": eu, "us": us}, dead)
		return err
	}
	for i := range int64(200) {
		if err := change(1+i%2, 1); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	var err error
	for i := int64(0); i < 2*maxTables && err == nil; i++ {
		err = change(500, 1+i)
	}
	if !errors.Is(err, ErrWeights) || !strings.Contains(err.Error(), "use weights that were used before") || len(w.record.Tables) != maxTables {
		t.Errorf("%d different weights: %v", len(w.record.Tables), err)
	}
	if err := change(500, 1); err != nil {
		t.Errorf("weights that were used before: %v", err)
	}
	if err := change(501, 0, "us"); err != nil {
		t.Errorf("a dead region: %v", err)
	}
}
