package region

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// scenario is a world of regions in virtual time: the real code over stores in memory, with a network that delays, loses and doubles
// messages, is cut and heals, and stores that stall. One seed determines all of it.
type scenario struct {
	seed    uint64
	limit   headgate.Limit
	weights []int64
	nodes   int // per region
	length  time.Duration
	// load returns the requests per second in each region at a time, and cost the units of a request.
	load func(at time.Duration) []float64
	cost func(*rand.Rand) int64

	oneWay            [][]time.Duration
	loss, duplication float64
	stall             float64       // probability that a call of the borrower or lender to its store is recorded up to two seconds later
	stallFor          time.Duration // instead of two seconds
	kill              float64       // probability that the process is killed before such a call, or before it has the response
	stallCredits      float64       // the same for credits
	cut               func(from, to int, at time.Duration) bool
	skew              []time.Duration
	noBorrowing       bool
	mutate            mutation
	loseEvery         time.Duration // how often the store of each region in turn loses its data; 0 if never
	weigh             *weighing     // nil if weights do not change
}

// mutation breaks the protocol, so that the checks can be seen to fail.
type mutation struct {
	charge  func(*headgate.Charge)      // changes credits
	twice   func(*headgate.Charge) bool // charges that are recorded twice
	skip    func(*headgate.Charge) bool // charges that are not recorded
	reserve bool                        // shares have the whole burst
	whole   bool                        // regions use the whole limit
	silent  bool                        // regions do not know that their store has lost data
}

// grant is one request that was decided.
type grant struct {
	at      time.Duration // true time since the start
	region  int
	window  int64 // by the region's store
	cost    int64
	granted int64
	ideal   int64 // granted by one counter of the whole limit
}

// outcome is what a scenario led to.
type outcome struct {
	grants []grant
	// over is the largest ratio of granted units to what the limit allows.
	over float64
	// used is the ratio of granted units to those that one counter of the whole limit grants for the same requests, and falseDenials
	// the part of all requests that were denied although that counter grants them.
	used, falseDenials float64
	loanRequests       int64
	requests           int64
	lent, lost         int64
	withSpare          int64           // denials while another region may have had units
	loans              []time.Duration // when units arrived
}

// simStore is the store of a region as seen by one of its nodes.
type simStore struct {
	*simRegion
	rank int
}

// simRegion is the shared part of a region's stores.
type simRegion struct {
	mu     sync.Mutex
	memory *memstore.Store
	world  *world
	number int
	lostAt time.Time // by its own clock
	skew   time.Duration
}

// lost returns when the store lost its data.
func (s *simRegion) lost(headgate.Subject) (at, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lostAt, time.Now().Add(s.skew)
}

func (s *simRegion) open(skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = memstore.New(memstore.Options{MaxEntries: 1000, Clock: func() time.Time { return time.Now().Add(skew) }})
}

func (s simStore) Publish(context.Context, string, []byte) error { return nil }
func (s simStore) Subscribe(context.Context, []string, func(string, []byte)) error {
	return errors.ErrUnsupported
}
func (s simStore) HolderID() uint64                              { return 1 }
func (s simStore) Shard(headgate.Subject) int                    { return 0 }
func (s simStore) Namespace() string                             { return "" }
func (s simStore) SigningKeys(context.Context) ([][]byte, error) { return nil, nil }
func (s simStore) Holders(context.Context, headgate.Subject, headgate.Counter) ([]headgate.Holder, error) {
	return nil, nil
}

type requestKey struct{}

// Take charges the store. Calls that are not of a request may stall: they are recorded later, and not answered.
func (s simStore) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	w := s.world
	if ctx.Value(requestKey{}) == nil && w.chance(w.kill) {
		if w.chance(0.5) {
			s.apply(charges, make([]headgate.Result, len(charges)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(storeTimeout):
		}
		return headgate.ErrUnanswered
	}
	stall := w.stall
	if charges[0].Credit {
		stall = max(stall, w.stallCredits)
	}
	if ctx.Value(requestKey{}) == nil && w.chance(stall) {
		delay := time.Duration(w.float() * float64(max(w.stallFor, 2*time.Second)))
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
			w.running.Go(func() {
				time.Sleep(delay)
				s.apply(charges, make([]headgate.Result, len(charges)))
			})
			<-ctx.Done()
			for i := range results {
				results[i] = headgate.Result{Err: headgate.ErrUnanswered}
			}
			return headgate.ErrUnanswered
		}
		time.Sleep(delay)
	}
	s.apply(charges, results)
	return nil
}

func (s simStore) apply(charges []headgate.Charge, results []headgate.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.world.mutate
	for i := range charges {
		c := charges[i]
		if m.charge != nil && c.Credit {
			m.charge(&c)
		}
		if m.skip != nil && m.skip(&c) {
			results[i] = headgate.Result{Allowed: true, Granted: c.Cost, Time: time.Now()}
			continue
		}
		_ = s.memory.Take(context.Background(), []headgate.Charge{c}, results[i:i+1])
		results[i].Nodes, results[i].Rank = int32(max(1, s.world.nodes)), int32(s.rank)
		if m.twice != nil && m.twice(&c) {
			_ = s.memory.Take(context.Background(), []headgate.Charge{c}, results[i:i+1])
		}
	}
}

// world is a running scenario.
type world struct {
	*scenario
	mu      sync.Mutex
	random  *rand.Rand
	loans   []time.Duration
	start   time.Time
	nodesOf [][]*Store
	shares  [][]*Shares // of each node
	tables  [][]*Weights
	running sync.WaitGroup
}

func (w *world) float() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Float64()
}

func (w *world) chance(p float64) bool { return p > 0 && w.float() < p }

// wire is the network from one region to another.
type wire struct {
	world    *world
	from, to int
}

func (l wire) Lend(ctx context.Context, req LoanRequest) (Loan, error) {
	w := l.world
	if w.noBorrowing || !w.travel(ctx, l.from, l.to) {
		<-ctx.Done()
		return Loan{}, ctx.Err()
	}
	nodes := w.nodesOf[l.to]
	if w.chance(w.duplication) {
		w.running.Go(func() { nodes[0].Lend(context.WithoutCancel(ctx), req) })
	}
	loan := nodes[int(w.float()*float64(len(nodes)))].Lend(context.WithoutCancel(ctx), req)
	if !w.travel(ctx, l.to, l.from) {
		<-ctx.Done()
		return Loan{}, ctx.Err()
	}
	if loan.Units > 0 {
		w.mu.Lock()
		w.loans = append(w.loans, time.Since(w.start))
		w.mu.Unlock()
	}
	return loan, nil
}

// travel waits for a message to arrive, and returns false if it does not in time.
func (w *world) travel(ctx context.Context, from, to int) bool {
	if w.cut != nil && w.cut(from, to, time.Since(w.start)) || w.chance(w.loss) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(w.oneWay[from][to] + time.Duration(-math.Log(1-w.float())*float64(time.Millisecond))):
		return true
	}
}

// simNow returns the time of stores whose clocks are right.
func simNow() time.Time { return time.Now() }

var simSubject, simCounter = headgate.SubjectOf("subject"), headgate.CounterOf("rule", "", headgate.TokenBucket)

// run runs the scenario in virtual time.
func (s *scenario) run(t *testing.T) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{scenario: s, random: rand.New(rand.NewPCG(s.seed, 0)), start: time.Now()}
		w.open()
		stop := w.startWeighing()
		ctx := context.WithValue(context.Background(), requestKey{}, true)
		grants := make([][]grant, len(s.weights))
		var requests sync.WaitGroup
		for region := range s.weights {
			random := rand.New(rand.NewPCG(s.seed, uint64(region)+1))
			requests.Go(func() { grants[region] = w.generate(ctx, region, random) })
		}
		requests.Wait()
		stop()
		for region, nodes := range w.nodesOf {
			for _, node := range nodes {
				node.Close()
				stats := node.Stats()
				o.loanRequests += stats.Requests
				o.lent += stats.Lent
				o.withSpare += stats.DeniedWithSpare
				o.lost += stats.Lent - stats.Borrowed
			}
			o.grants = append(o.grants, grants[region]...)
		}
		w.running.Wait()
		o.loans = w.loans
	})
	sort.SliceStable(o.grants, func(i, j int) bool { return o.grants[i].at < o.grants[j].at })
	s.judge(&o)
	return o
}

// open creates the regions and their nodes.
func (w *world) open() {
	var members []Member
	for i, weight := range w.weights {
		members = append(members, Member{fmt.Sprint("r", i), weight})
	}
	for i := range w.weights {
		skew := time.Duration(0)
		if w.skew != nil {
			skew = w.skew[i]
		}
		links := map[string]Link{}
		for j := range w.weights {
			if j != i {
				links[members[j].Name] = wire{w, i, j}
			}
		}
		shared := &simRegion{world: w, number: i, skew: skew}
		shared.open(skew)
		var nodes []*Store
		var all []*Shares
		for n := range max(1, w.nodes) {
			shares := NewShares(members, members[i].Name)
			all = append(all, shares)
			node := New(simStore{shared, n + 1}, shares, links)
			if !w.mutate.silent {
				node.PresumeUsed(shared.lost)
			}
			nodes = append(nodes, node)
		}
		w.nodesOf, w.shares = append(w.nodesOf, nodes), append(w.shares, all)
		w.openWeights(i, members, skew)
		if w.loseEvery > 0 {
			w.running.Go(func() { w.loseStore(i, shared) })
		}
	}
}

// loseStore makes the store of a region lose its data, after those of the regions before it.
func (w *world) loseStore(region int, shared *simRegion) {
	for at := time.Duration(region+1) * w.loseEvery; at < w.length; at += time.Duration(len(w.weights)) * w.loseEvery {
		time.Sleep(at - time.Since(w.start))
		shared.open(shared.skew)
		shared.mu.Lock()
		shared.lostAt = time.Now().Add(shared.skew)
		shared.mu.Unlock()
	}
}

// generate sends the requests of a region.
func (w *world) generate(ctx context.Context, region int, random *rand.Rand) (grants []grant) {
	whole := w.limit
	if w.mutate.reserve { // as if there were no reserve
		whole.Burst = whole.Capacity() + int64(headgate.MaxTransfer.Seconds()*float64(whole.Count)/whole.Window.Seconds())
	}
	cost := w.cost
	if cost == nil {
		cost = func(*rand.Rand) int64 { return 1 }
	}
	for {
		now := time.Since(w.start)
		rate := w.load(now)[region]
		const longest = 20 * time.Millisecond // the load may change; an exponential distribution has no memory
		pause := longest
		if rate > 0 {
			pause = min(pause, time.Duration(random.ExpFloat64()/rate*float64(time.Second)))
		}
		time.Sleep(pause)
		if now = time.Since(w.start); now >= w.length {
			return grants
		}
		if rate == 0 || pause == longest {
			continue
		}
		node := random.IntN(len(w.nodesOf[region]))
		limit := w.shares[region][node].Share(simSubject, &whole)
		if w.mutate.whole {
			limit = headgate.Fraction{To: 1, Of: 1}.Share(w.limit)
		}
		c := headgate.Charge{Subject: simSubject, Counter: simCounter, Limit: limit, Whole: whole, Cost: cost(random)}
		var results [1]headgate.Result
		if w.weigh != nil && w.weigh.always {
			w.shares[region][node].freshUntil.Store(0)
		}
		_ = w.nodesOf[region][node].Take(ctx, []headgate.Charge{c}, results[:])
		if results[0].Err != nil {
			continue
		}
		start, _ := windowOf(&c, results[0].Time)
		grants = append(grants, grant{at: now, region: region, window: start, cost: c.Cost, granted: results[0].Granted})
	}
}

// judge compares what was granted with what the limit allows, and with one counter of the whole limit.
func (s *scenario) judge(o *outcome) {
	whole := headgate.Fraction{To: 1, Of: 1}.Share(s.limit)
	ideal := whole
	ideal.Burst = s.limit.Burst
	var state headgate.State
	var granted, possible, wrong int64
	perWindow := map[int64]int64{}
	level, last := 0.0, time.Duration(0)
	rate := float64(s.limit.Count) / s.limit.Window.Seconds()
	start := time.Unix(2_000_000_000, 0)
	for i := range o.grants {
		g := &o.grants[i]
		c := headgate.Charge{Subject: simSubject, Limit: ideal, Cost: g.cost}
		var r headgate.Result
		state, r = ideal.Take(state, c, start.Add(g.at))
		g.ideal = r.Granted
		granted += g.granted
		possible += r.Granted
		if r.Allowed && g.granted == 0 {
			wrong++
		}
		perWindow[g.window] += g.granted
		level = max(0, level-(g.at-last).Seconds()*rate) + float64(g.granted)
		last = g.at
		if s.limit.Algorithm == headgate.TokenBucket {
			o.over = max(o.over, level/float64(s.limit.Capacity()))
		}
	}
	if s.limit.Algorithm != headgate.TokenBucket {
		for _, units := range perWindow {
			o.over = max(o.over, float64(units)/float64(s.limit.Count))
		}
	}
	o.requests = int64(len(o.grants))
	o.used = float64(granted) / float64(max(1, possible))
	o.falseDenials = float64(wrong) / float64(max(1, o.requests))
}
