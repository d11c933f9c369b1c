package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// genome describes one request and the prior state of its counters.
type genome struct {
	Blocks []block
	When   timing
}

// timing is when the request is made.
type timing uint8

const (
	// atOnce is right after the preparation.
	atOnce timing = iota
	// afterLapse is just after the log entries and holds that were to lapse have lapsed.
	afterLapse
	// afterExpiry is just after the full second that follows, at which short-lived states and keys expire.
	afterExpiry
	// afterCleanup is later: the server has deleted expired keys.
	afterCleanup

	timings
)

// block is a number of similar counters, and the charges on each of them.
type block struct {
	Counters int
	// Spread gives each counter its own subject; otherwise all share the subject with the number Subject.
	Spread  bool
	Subject int
	Limit   headgate.Limit
	// MaxDelay is the MaxDelay of charges on a leaky bucket.
	MaxDelay time.Duration
	// Used is the recorded use in percent of the capacity, possibly over 100. A sliding log has Entries instead.
	Used int
	// Credited credits a unit beforehand, which makes the state of a token bucket longer.
	Credited bool
	// Entries is the number of entries of a sliding log, of one unit each.
	Entries int
	// Holds is the number of holds of the counter, of one unit each; leaky buckets and sliding logs have none.
	Holds   int
	HoldMix holdMix
	// Lapsed is the percentage of entries and holds that have lapsed when the request is made.
	Lapsed int
	// Others is the number of additional counters of each subject, expired by then or not.
	Others        int
	OthersExpired bool
	Charges       []gene
}

// holdMix is the distribution of the expiry times of a counter's holds.
type holdMix uint8

const (
	sameHold   holdMix = iota // all of one duration
	evenHolds                 // evenly up to headgate.MaxHold, in random order
	skewedHold                // most of them short, few up to headgate.MaxHold

	holdMixes
)

// gene is one charge on each counter of a block, or several equal ones.
type gene struct {
	Kind   kind
	Repeat int
	Cost   cost
	// Partial accepts one unit.
	Partial bool
	// Where selects, in percent from the oldest to the newest, the entry to refund, the hold to release, or the age of the
	// recorded units.
	Where int
	// Hold is the hold of a reservation.
	Hold time.Duration
}

// kind is the kind of a charge.
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

// cost is a symbolic cost of a charge.
type cost uint8

const (
	one cost = iota
	few
	half        // of the capacity
	whole       // the capacity
	over        // one more than the capacity: an enforcing charge is denied
	largestCost // headgate.MaxCost
)

func (t timing) String() string {
	return [...]string{"at once", "after the lapse", "after expiry", "after cleanup"}[t]
}

func (m holdMix) String() string { return [...]string{"all alike", "evenly spread", "mostly short"}[m] }

func (k kind) String() string {
	return [...]string{
		"charge", "peek", "observe", "observe with a twin", "force", "force with an age", "credit", "refund",
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
	case largestCost:
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

// charges returns the number of charges of the request.
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

// steps returns the maximum number of charges of the preparation.
func (g *genome) steps() int { return g.sum((*block).steps) }

func (b *block) steps() int {
	n := b.Counters * (2 + b.wantedReceipts() + b.Entries + b.Holds)
	if b.Spread {
		return n + b.Counters*b.Others
	}
	return n + b.Others
}

// wantedReceipts returns the number of charges that the preparation makes on each counter to get receipts.
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

// bounds limits a genome: the charges that the store accepts in one request, and the steps of the preparation.
type bounds struct{ charges, steps int }

// fit corrects values that are invalid or exceed the bounds.
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
		// Prefer few counters with much state to many with little, but not a single one.
		if b.Counters > 8 && (b.Spread || b.steps() > 2*b.Others) || max(b.Entries, b.Holds, b.Others) == 0 {
			cut(&b.Counters)
		} else {
			cut(&b.Entries, &b.Holds, &b.Others)
		}
	}
}

// largest returns the block for which of returns the largest number.
func (g *genome) largest(of func(*block) int) *block {
	worst := &g.Blocks[0]
	for i := range g.Blocks {
		if b := &g.Blocks[i]; of(b) > of(worst) {
			worst = b
		}
	}
	return worst
}

// cut reduces the largest number by a quarter.
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
