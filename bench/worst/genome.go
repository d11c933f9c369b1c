package main

import (
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// genome is one request and the state of the counters that it finds.
type genome struct {
	Blocks []block
	When   timing
}

// timing says when the request is made.
type timing uint8

const (
	// atOnce is right after the preparation.
	atOnce timing = iota
	// afterLapse is just after the log entries and holds that were meant to lapse have.
	afterLapse
	// afterExpiry is just after the full second that follows, at which short-lived states and keys expire.
	afterExpiry
	// afterCleanup is later still: the server has deleted expired keys by itself.
	afterCleanup

	timings
)

// block is some counters that are alike, and the charges on each of them.
type block struct {
	Counters int
	// Spread puts each counter on a subject of its own; otherwise all of them share the one numbered Subject.
	Spread  bool
	Subject int
	Limit   headgate.Limit
	// MaxDelay is that of the charges on a leaky bucket.
	MaxDelay time.Duration
	// Used is the recorded use in percent of the capacity, which it may exceed. A sliding log has Entries instead.
	Used int
	// Credited gives back a unit beforehand, which makes the state of a token bucket longer.
	Credited bool
	// Entries is how many entries of one unit each a sliding log has.
	Entries int
	// Holds is how many holds of one unit each the counter has; leaky buckets and sliding logs have none.
	Holds   int
	HoldMix holdMix
	// Lapsed is how many percent of the entries and holds have run out when the request is made.
	Lapsed int
	// Others is how many further counters each subject has, expired by then or not.
	Others        int
	OthersExpired bool
	Charges       []gene
}

// holdMix says how the expiry times of a counter's holds are distributed.
type holdMix uint8

const (
	sameHold   holdMix = iota // all of one duration
	evenHolds                 // evenly up to headgate.MaxHold, in random order
	skewedHold                // most of them short, few up to headgate.MaxHold

	holdMixes
)

// gene is one charge on each counter of a block, or several that are alike.
type gene struct {
	Kind   kind
	Repeat int
	Cost   cost
	// Partial makes do with one unit.
	Partial bool
	// Where picks, in percent from the oldest to the newest, the entry to refund, the hold to release, or the age of what is
	// recorded.
	Where int
	// Hold is for how long a reservation holds its units.
	Hold time.Duration
}

// kind is what a charge does.
type kind uint8

const (
	take kind = iota
	peek
	observe
	observeTwin
	force
	forceAged
	credit
	refund
	reserve
	commit
	commitAged
	cancel

	kinds
)

// cost is how many units a charge asks for.
type cost uint8

const (
	one cost = iota
	few
	half  // of the capacity
	whole // the capacity
	over  // one more than the capacity: an enforcing charge is denied
	most  // headgate.MaxCost

	costs
)

// units returns the cost on a limit.
func (c cost) units(l headgate.Limit) int64 {
	capacity := l.Capacity()
	switch c {
	case few:
		return 3
	case half:
		return max(1, capacity/2)
	case whole:
		return capacity
	case over:
		return min(capacity+1, headgate.MaxCost)
	case most:
		return headgate.MaxCost
	default:
		return 1
	}
}

// clone returns a copy that shares nothing with g.
func (g *genome) clone() genome {
	c := genome{When: g.When, Blocks: append([]block(nil), g.Blocks...)}
	for i := range c.Blocks {
		c.Blocks[i].Charges = append([]gene(nil), c.Blocks[i].Charges...)
	}
	return c
}

// charges returns how many charges the request has.
func (g *genome) charges() int {
	n := 0
	for i := range g.Blocks {
		n += g.Blocks[i].Counters * g.Blocks[i].perCounter()
	}
	return n
}

func (b *block) perCounter() int {
	n := 0
	for _, c := range b.Charges {
		n += c.Repeat
	}
	return n
}

// holds reports whether reservations on the counters hold units.
func (b *block) holds() bool {
	return b.Limit.Algorithm != headgate.LeakyBucket && b.Limit.Algorithm != headgate.SlidingLog
}

// subjects returns how many subjects the counters are on.
func (b *block) subjects() int {
	if b.Spread {
		return b.Counters
	}
	return 1
}

// prices are how many microseconds a step of the preparation takes, by its kind.
type prices [stepKinds]float64

// weight returns about how many microseconds the preparation takes.
func (g *genome) weight(p prices) float64 {
	sum := 0.0
	for i := range g.Blocks {
		w := g.Blocks[i].weigh(p)
		sum += w.base + w.entries + w.holds + w.others
	}
	return sum
}

// weights are what the parts of a block's preparation take.
type weights struct{ base, entries, holds, others float64 }

func (b *block) weigh(p prices) weights {
	counters := float64(b.Counters)
	return weights{
		base:    counters * (p[stepUse] + p[stepCredit] + float64(b.wantedReceipts())*p[stepReceipt]),
		entries: counters * float64(b.Entries) * p[stepEntry],
		holds:   counters * float64(b.Holds) * p[stepHold],
		others:  float64(b.subjects()) * float64(b.Others) * p[stepOther],
	}
}

// wantedReceipts returns how many charges the preparation makes on each counter for the sake of their receipts.
func (b *block) wantedReceipts() int {
	n := 0
	for _, c := range b.Charges {
		if c.Kind == refund || c.Kind >= commit && !b.holds() {
			n += c.Repeat
		}
	}
	if b.Limit.Algorithm == headgate.SlidingLog {
		return 0 // its entries have receipts
	}
	return min(n, 64)
}

// bounds are what a genome must keep to.
type bounds struct {
	// charges of one request that the store accepts.
	charges int
	// weight of the preparation, at prices.
	weight float64
	prices prices
}

// fit changes what does not make sense or exceeds the bounds.
func (g *genome) fit(to bounds) {
	if len(g.Blocks) > 6 {
		g.Blocks = g.Blocks[:6]
	}
	for i := range g.Blocks {
		g.Blocks[i].fit(g.When)
	}
	for g.charges() > to.charges {
		g.fewerCharges()
	}
	for g.weight(to.prices) > to.weight {
		if !g.lighter(to.prices) {
			break
		}
	}
}

func (b *block) fit(when timing) {
	b.Counters = max(1, b.Counters)
	b.Lapsed = min(max(0, b.Lapsed), 100)
	b.Others = max(0, b.Others)
	if when == atOnce {
		b.Lapsed, b.OthersExpired = 0, false
	}
	if b.Limit.Algorithm == headgate.SlidingLog {
		b.Entries = min(max(0, b.Entries), headgate.MaxLogCount)
		b.Used = 0
	} else {
		b.Entries = 0
	}
	b.Holds = min(max(0, b.Holds), headgate.MaxHolds)
	if !b.holds() {
		b.Holds = 0
	}
	if len(b.Charges) == 0 {
		b.Charges = []gene{{}}
	}
	for i := range b.Charges {
		c := &b.Charges[i]
		c.Repeat = max(1, c.Repeat)
		c.Where = min(max(0, c.Where), 100)
		if c.Kind >= commit && b.holds() {
			b.Holds = max(1, b.Holds)
		}
	}
	b.Holds = min(b.Holds, int(b.Limit.Capacity())) // of one unit each
}

// simpler returns the genomes that lack one thing.
func (g *genome) simpler() []genome {
	var all []genome
	without := func(change func(*genome)) {
		less := g.clone()
		change(&less)
		less.fit(bounds{charges: g.charges(), weight: math.Inf(1)})
		if less.String() != g.String() {
			all = append(all, less)
		}
	}
	for i := range g.Blocks {
		if len(g.Blocks) > 1 {
			without(func(g *genome) { g.Blocks = slices.Delete(g.Blocks, i, i+1) })
		}
		for j := range g.Blocks[i].Charges {
			if len(g.Blocks[i].Charges) > 1 {
				without(func(g *genome) { g.Blocks[i].Charges = slices.Delete(g.Blocks[i].Charges, j, j+1) })
			}
			for _, change := range []func(*gene){
				func(c *gene) { c.Repeat = 1 }, func(c *gene) { c.Partial = false }, func(c *gene) { c.Cost = one },
			} {
				without(func(g *genome) { change(&g.Blocks[i].Charges[j]) })
			}
		}
		for _, change := range []func(*block){
			func(b *block) { b.Others = 0 }, func(b *block) { b.Holds = 0 }, func(b *block) { b.Lapsed = 0 },
			func(b *block) { b.Credited = false }, func(b *block) { b.Used = 0 }, func(b *block) { b.Counters = 1 },
		} {
			without(func(g *genome) { change(&g.Blocks[i]) })
		}
	}
	without(func(g *genome) { g.When = atOnce })
	return all
}

// fewerCharges cuts down what contributes most charges.
func (g *genome) fewerCharges() {
	worst := &g.Blocks[0]
	for i := range g.Blocks {
		if b := &g.Blocks[i]; b.Counters*b.perCounter() > worst.Counters*worst.perCounter() {
			worst = b
		}
	}
	repeated := 0
	for i, c := range worst.Charges {
		if c.Repeat > worst.Charges[repeated].Repeat {
			repeated = i
		}
	}
	switch c := &worst.Charges[repeated]; {
	case worst.Counters > 1 && worst.Counters >= c.Repeat:
		worst.Counters -= (worst.Counters + 9) / 10
	case c.Repeat > 1:
		c.Repeat -= (c.Repeat + 9) / 10
	case len(worst.Charges) > 1:
		worst.Charges = worst.Charges[1:]
	default:
		g.Blocks = g.Blocks[1:]
	}
}

// lighter cuts down what takes the most preparation; false if there is nothing to cut down.
func (g *genome) lighter(p prices) bool {
	type part struct {
		weight float64
		of     *block
		number *int
	}
	var heaviest part
	for i := range g.Blocks {
		b := &g.Blocks[i]
		w := b.weigh(p)
		for _, one := range []part{
			{w.base, b, &b.Counters}, {w.entries, b, &b.Entries}, {w.holds, b, &b.Holds}, {w.others, b, &b.Others},
		} {
			if one.weight > heaviest.weight {
				heaviest = one
			}
		}
	}
	n := heaviest.number
	if n == nil {
		return false
	}
	// Rather few counters with much on each than many with little, but not one alone.
	if b := heaviest.of; b.Counters > 8 && (n != &b.Others || b.Spread) || b.Counters > 1 && *n <= 1 {
		n = &b.Counters
	}
	if n == &heaviest.of.Counters && *n == 1 {
		return false
	}
	*n -= (*n + 3) / 4
	return true
}
