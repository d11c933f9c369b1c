package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is what happens in a run. All of it follows from the seed.
type plan struct {
	seed   uint64
	shared bool            // whether regions share their limits
	stores []string        // kinds of the regions' stores
	skews  []time.Duration // by which the regions' stores are ahead
	bounds bool            // judge only the limits, and not how much of them was used
	// demand is how many times a rule's limit its callers ask for.
	demand map[string]float64
	phases []phase
	length time.Duration
}

// phase is a part of a run with its own load, and faults of its own.
type phase struct {
	name   string
	length time.Duration
	// weights returns the parts of the load that regions have, at a time in the phase.
	weights func(at time.Duration) []float64
	factor  float64      // of the load; 0 means 1
	begin   func(*world) // begins the fault
	end     func(*world) // ends the fault
	// minUse is the smallest utilisation and maxFalse the largest part of requests that may be denied falsely. They leave room for a busy
	// machine, but none for regions that do not lend, which use about 0.7 while the load is in one place. They are judged in the
	// long form, if the clocks of all stores agree; 0 means any.
	minUse, maxFalse float64
}

// Streams of random numbers of a seed.
const (
	planStream = iota
	loadStream
	killStream
)

// newPlan returns the plan of a seed. stores are the kinds of stores; if it is empty, the seed chooses.
func newPlan(seed uint64, stores string, length time.Duration, shared bool) (*plan, error) {
	random := rand.New(rand.NewPCG(seed, planStream))
	p := &plan{seed: seed, shared: shared, demand: map[string]float64{}, length: length, skews: make([]time.Duration, len(names))}
	var err error
	if p.stores, err = storesOf(seed, stores); err != nil {
		return nil, err
	}
	if i := random.IntN(len(names)); seed%2 == 0 && p.stores[i] == redis {
		maximum := []int{500, 30_000}[random.IntN(2)] // less than a window, in which regions may still lend, or several
		p.skews[i] = time.Duration(random.IntN(2*maximum)-maximum) * time.Millisecond
	}
	for _, r := range rules() {
		p.demand[r.ID] = []float64{0.9, 1, 1.2, 1.5}[random.IntN(4)]
	}
	p.phases = p.newPhases(random)
	sum := time.Duration(0)
	for _, phase := range p.phases {
		sum += phase.length
	}
	for i := range p.phases {
		p.phases[i].length = time.Duration(float64(p.phases[i].length) / float64(sum) * float64(length))
	}
	return p, nil
}

// storesOf returns the kind of each region's store: of one of the seeds another kind, of all others standalone Redis.
func storesOf(seed uint64, kinds string) ([]string, error) {
	if kinds == "" {
		switch seed % longSeeds {
		case 3:
			kinds = "valkey,redis,redis"
		case 5:
			kinds = "redis,sentinel,redis"
		case 7:
			kinds = "redis,redis,cluster"
		default:
			kinds = redis
		}
	}
	all := strings.Split(kinds, ",")
	if len(all) == 1 {
		all = slices.Repeat(all, len(names))
	}
	if len(all) != len(names) {
		return nil, fmt.Errorf("-store %q: write one kind, or %d kinds with commas in between", kinds, len(names))
	}
	for _, kind := range all {
		if !slices.Contains([]string{redis, valkey, sentinel, cluster}, kind) {
			return nil, fmt.Errorf("-store %q: must be redis, valkey, sentinel or cluster", kind)
		}
	}
	return all, nil
}

// String describes the plan.
func (p *plan) String() string {
	parts := []string{"stores " + strings.Join(p.stores, ", ")}
	for i, skew := range p.skews {
		if skew != 0 {
			parts = append(parts, fmt.Sprintf("the clock of %s %+.3f s", names[i], skew.Seconds()))
		}
	}
	var load []string
	for _, r := range rules() {
		load = append(load, fmt.Sprintf("%s %g L", r.ID, p.demand[r.ID]))
	}
	parts = append(parts, "load "+strings.Join(load, ", "))
	if !p.shared {
		parts = append(parts, "limits are not shared")
	}
	return strings.Join(parts, "; ")
}

// skewed reports whether the clocks of stores differ.
func (p *plan) skewed() bool {
	return slices.ContainsFunc(p.skews, func(skew time.Duration) bool { return skew != 0 })
}

// victim returns the region whose store is killed: the one with another kind of store than the others, or one of them.
func (p *plan) victim(random *rand.Rand) int {
	chosen := random.IntN(len(names))
	if other := slices.IndexFunc(p.stores, func(kind string) bool { return kind != redis }); other >= 0 {
		return other
	}
	return chosen
}

// newPhases returns the phases of a run, whose lengths are relative.
func (p *plan) newPhases(random *rand.Rand) []phase {
	order := random.Perm(len(names))
	spread := func(weights ...float64) func(time.Duration) []float64 {
		all := make([]float64, len(names))
		for i, weight := range weights {
			all[order[i]] = weight
		}
		return func(time.Duration) []float64 { return all }
	}
	moves := random.Perm(len(names))
	const stay = 2 * time.Second
	slowdown := 2 + 6*random.Float64()
	loss, duplication := 0.05+0.15*random.Float64(), 0.05+0.15*random.Float64()
	cutOff := cut{region: random.IntN(len(names)), directions: 1 + random.IntN(3)}
	server, victim := random.IntN(len(names)*nodesPerRegion), p.victim(random)
	recovery := 3 * time.Second
	if p.stores[victim] == sentinel || p.stores[victim] == cluster {
		recovery = 8 * time.Second // a failover takes longer than a restart
	}
	return []phase{
		{name: "90/9/1", length: 6 * time.Second, weights: spread(90, 9, 1), minUse: 0.8, maxFalse: 0.2},
		{name: "all in one region", length: 4 * time.Second, weights: spread(0, 1, 0), minUse: 0.75, maxFalse: 0.3},
		{name: "moves every 2 s", length: 6 * time.Second, minUse: 0.75, maxFalse: 0.3, weights: func(at time.Duration) []float64 {
			all := make([]float64, len(names))
			all[moves[int(at/stay)%len(names)]] = 1
			return all
		}},
		{name: "flood everywhere", length: 5 * time.Second, weights: spread(1, 1, 1), factor: 3, minUse: 0.85},
		{
			name:   fmt.Sprintf("%.0f %% lost, %.0f %% doubled", 100*loss, 100*duplication),
			length: 3 * time.Second, weights: spread(70, 20, 10), minUse: 0.5,
			begin: func(w *world) { w.disturb(loss, duplication) }, end: func(w *world) { w.disturb(0, 0) },
		},
		{
			name: fmt.Sprintf("delays %.1f times as long", slowdown), length: 4 * time.Second, weights: spread(70, 20, 10), minUse: 0.4,
			begin: func(w *world) { w.slowDown(slowdown) }, end: func(w *world) { w.slowDown(1) },
		},
		{name: cutOff.String(), length: 3 * time.Second, weights: spread(50, 30, 20), minUse: 0.5, begin: cutOff.begin, end: cutOff.end},
		{name: "healed", length: 3 * time.Second, weights: spread(70, 20, 10), minUse: 0.5}, // regions may lend only at its end
		{
			name: "server of " + names[server/nodesPerRegion] + " killed", length: 2 * time.Second, weights: spread(50, 30, 20), minUse: 0.5,
			begin: func(w *world) { w.killServer(server/nodesPerRegion, server%nodesPerRegion) },
		},
		{
			name: "store of " + names[victim] + " killed", length: recovery, weights: spread(50, 30, 20),
			begin: func(w *world) { w.killStore(victim) },
		},
	}
}

// phaseAt returns the phase of a time since the beginning, and the time within it.
func (p *plan) phaseAt(at time.Duration) (*phase, time.Duration) {
	for i := range p.phases {
		if ph := &p.phases[i]; at < ph.length || i == len(p.phases)-1 {
			return ph, at
		}
		at -= p.phases[i].length
	}
	return nil, 0 // unreachable: there is a last phase
}
