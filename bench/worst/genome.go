package main

import (
	"cmp"
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
)

func (t timing) String() string {
	return [...]string{"at once", "after the lapse", "after expiry", "after cleanup"}[t]
}

func (m holdMix) String() string { return [...]string{"all alike", "evenly spread", "mostly short"}[m] }

func (k kind) String() string {
	return [...]string{
		"charge", "peek", "observe", "observe beside a twin", "force", "force with an age", "credit", "refund",
		"reserve", "commit", "commit with an age", "cancel",
	}[k]
}

func (c cost) String() string {
	return [...]string{"1", "3", "half", "all", "more than all", "the largest cost"}[c]
}

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
	c := genome{When: g.When, Blocks: slices.Clone(g.Blocks)}
	for i := range c.Blocks {
		c.Blocks[i].Charges = slices.Clone(c.Blocks[i].Charges)
	}
	return c
}

// charges returns how many charges the request has.
func (g *genome) charges() int { return g.sum((*block).charges) }

func (g *genome) sum(of func(*block) int) (n int) {
	for i := range g.Blocks {
		n += of(&g.Blocks[i])
	}
	return n
}

func (b *block) charges() int {
	n := 0
	for _, c := range b.Charges {
		n += b.Counters * c.Repeat
	}
	return n
}

// holds reports whether reservations on the counters hold units.
func (b *block) holds() bool {
	return b.Limit.Algorithm != headgate.LeakyBucket && b.Limit.Algorithm != headgate.SlidingLog
}

// steps returns how many charges the preparation takes at most.
func (g *genome) steps() int { return g.sum((*block).steps) }

func (b *block) steps() int {
	n := b.Counters * (2 + b.wantedReceipts() + b.Entries + b.Holds)
	if b.Spread {
		return n + b.Counters*b.Others
	}
	return n + b.Others
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

// bounds are what a genome must keep to: charges that the store accepts in one request, and steps of preparation.
type bounds struct{ charges, steps int }

// fit changes what is invalid or exceeds the bounds.
func (g *genome) fit(to bounds) {
	g.Blocks = g.Blocks[:min(6, len(g.Blocks))]
	for i := range g.Blocks {
		g.Blocks[i].fit(g.When)
	}
	for g.charges() > to.charges {
		b := g.largest((*block).charges)
		numbers := []*int{&b.Counters}
		for i := range b.Charges {
			numbers = append(numbers, &b.Charges[i].Repeat)
		}
		cut(numbers...)
	}
	for g.steps() > to.steps {
		b := g.largest((*block).steps)
		// Rather few counters with much on each than many with little, but not one alone.
		if b.Counters > 8 && (b.Spread || b.steps() > 2*b.Others) || max(b.Entries, b.Holds, b.Others) == 0 {
			cut(&b.Counters)
		} else {
			cut(&b.Entries, &b.Holds, &b.Others)
		}
	}
}

// largest returns the block with the most of something.
func (g *genome) largest(of func(*block) int) *block {
	worst := &g.Blocks[0]
	for i := range g.Blocks {
		if b := &g.Blocks[i]; of(b) > of(worst) {
			worst = b
		}
	}
	return worst
}

// cut takes a quarter off the largest number.
func cut(numbers ...*int) {
	n := slices.MaxFunc(numbers, func(a, b *int) int { return cmp.Compare(*a, *b) })
	*n -= (*n + 3) / 4
}

func (b *block) fit(when timing) {
	b.Counters = max(1, b.Counters)
	if when == atOnce {
		b.Lapsed, b.OthersExpired = 0, false
	}
	if b.Limit.Algorithm == headgate.SlidingLog {
		b.Used = 0
	} else {
		b.Entries = 0
	}
	if !b.holds() {
		b.Holds = 0
	}
	b.Charges = b.Charges[:min(8, len(b.Charges))]
	for i := range b.Charges {
		c := &b.Charges[i]
		c.Repeat = max(1, c.Repeat)
		if c.Kind >= commit && b.holds() {
			b.Holds = max(1, b.Holds)
		}
	}
	b.Holds = min(b.Holds, int(b.Limit.Capacity())) // of one unit each
}
