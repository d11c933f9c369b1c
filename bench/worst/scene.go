package main

import (
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
)

// scene is a genome applied to new subjects: the preparation and the request.
type scene struct {
	counters []*counter
}

// counter is one counter of a scene.
type counter struct {
	*block
	subject headgate.Subject
	id      headgate.Counter
	twin    headgate.Counter
	others  int // additional counters of the subject that this one prepares

	receipts, held []headgate.Receipt
}

// newScene names the subjects and counters of a genome; salt makes them unique to the scene.
func newScene(g *genome, salt int) *scene {
	s := &scene{}
	first := map[headgate.Subject]headgate.Counter{}
	for i := range g.Blocks {
		b := &g.Blocks[i]
		for n := range b.Counters {
			c := &counter{block: b, subject: subjectOf(b, i, n, salt)}
			c.id = headgate.CounterOf(strconv.Itoa(i), strconv.Itoa(n), b.Limit.Algorithm)
			if _, ok := first[c.subject]; !ok {
				first[c.subject] = c.id
			}
			if c.twin = first[c.subject]; b.Spread || n == 0 {
				c.others = b.Others
			}
			s.counters = append(s.counters, c)
		}
	}
	return s
}

func subjectOf(b *block, i, n, salt int) headgate.Subject {
	if b.Spread {
		return headgate.SubjectOf("worst", strconv.Itoa(salt), strconv.Itoa(i), strconv.Itoa(n))
	}
	return headgate.SubjectOf("worst", strconv.Itoa(salt), "shared", strconv.Itoa(b.Subject))
}

// step is one charge of the preparation.
type step struct {
	*counter
	does stepKind
	n    int // number within its kind
}

type stepKind uint8

const (
	stepReceipt stepKind = iota
	stepHold
	stepUse
	stepCredit
	stepEntry
	stepOther
)

// steps returns the preparation of a counter in order.
func (c *counter) steps() []step {
	var all []step
	add := func(does stepKind, times int) {
		for n := range times {
			all = append(all, step{c, does, n})
		}
	}
	add(stepReceipt, c.wantedReceipts())
	add(stepHold, c.Holds)
	if c.Used > 0 {
		add(stepUse, 1)
	}
	if c.Credited {
		add(stepCredit, 1)
	}
	add(stepEntry, c.Entries)
	add(stepOther, c.others)
	return all
}

// charge returns the charge of a step. Steps are independent of each other: they observe, or are recorded unconditionally.
func (s step) charge(now, lapse time.Time) headgate.Charge {
	c := headgate.Charge{Subject: s.subject, Counter: s.id, Limit: s.Limit, Cost: 1, MaxDelay: s.MaxDelay}
	switch s.does {
	case stepReceipt:
		c.Observe = true
	case stepHold:
		c.Observe, c.Hold = true, s.holdFor(now, lapse)
	case stepUse:
		c.Force = true
		c.Cost = int64(min(headgate.MaxCost, max(1, float64(s.Limit.Capacity())*float64(s.Used)/100)))
	case stepCredit:
		c.Credit = true
	case stepEntry:
		c.Force, c.Age = true, s.age(now, lapse)
	case stepOther:
		c.Counter = headgate.CounterOf("other", strconv.Itoa(s.n), headgate.TokenBucket)
		c.Force = true
		c.Limit = headgate.PerHour(1)
		if s.OthersExpired {
			c.Limit = headgate.Per(1, time.Millisecond)
		}
	}
	return c
}

// lapsing returns how many of the entries or holds lapse before the request; they come first.
func (b *block) lapsing(all int) int { return (all*b.Lapsed + 99) / 100 }

// holdFor returns the duration of the hold with number s.n.
func (s step) holdFor(now, lapse time.Time) time.Duration {
	const least = 30 * time.Second // more than a preparation takes
	if n := s.lapsing(s.Holds); s.n < n {
		// The store rounds up by at most an eighth, or a 64th of a second.
		return max(time.Millisecond, lapse.Sub(now)*8/9-time.Second/64-time.Duration(s.n)*time.Microsecond)
	}
	share := float64(bare.Spread(0, s.n)) / math.MaxInt32
	switch s.HoldMix {
	case evenHolds:
		return least + time.Duration(share*float64(headgate.MaxHold-least))
	case skewedHold:
		return time.Duration(float64(least) * math.Pow(float64(headgate.MaxHold)/float64(least), share))
	default:
		return headgate.MaxHold / 2
	}
}

// age returns the age of the entry with number s.n. The oldest comes first, so that each is appended.
func (s step) age(now, lapse time.Time) time.Duration {
	window := s.Limit.Window
	n := s.lapsing(s.Entries)
	if s.n < n {
		return max(0, window-lapse.Sub(now)+time.Duration(n-s.n)*time.Microsecond)
	}
	share := float64(s.Entries-s.n) / float64(s.Entries-n)
	return time.Duration(float64(window/2) * share).Truncate(time.Microsecond)
}

// record keeps the receipt of a step's result.
func (s step) record(charge *headgate.Charge, r *headgate.Result) {
	c := s.counter
	switch s.does {
	case stepReceipt:
		if r.Receipt.Units > 0 {
			c.receipts = append(c.receipts, r.Receipt)
		}
	case stepHold:
		if r.Receipt.Units > 0 {
			c.held = append(c.held, r.Receipt)
		}
	case stepEntry: // a receipt identifies an entry by its time
		mark := r.Time.Add(-charge.Age).UnixMicro()
		c.receipts = append(c.receipts, headgate.Receipt{Units: 1, Mark: mark})
	}
}

// request returns the charges to measure, once the scene is prepared.
func (s *scene) request() []headgate.Charge {
	var all []headgate.Charge
	for _, c := range s.counters {
		for _, g := range c.Charges {
			for n := range g.Repeat {
				all = append(all, c.charge(g, n))
			}
		}
	}
	return all
}

// charge returns the nth charge of a gene.
func (c *counter) charge(g gene, n int) headgate.Charge {
	charge := headgate.Charge{
		Subject: c.subject, Counter: c.id, Limit: c.Limit, MaxDelay: c.MaxDelay, Cost: g.Cost.units(c.Limit),
	}
	if g.Partial {
		charge.AtLeast = 1
	}
	switch g.Kind {
	case peek:
		charge.Cost = 0
	case observe:
		charge.Observe = true
	case observeTwin:
		charge.Observe, charge.Twin = true, c.twin
	case force:
		charge.Force = true
	case forceAged:
		charge.Force, charge.Age = true, c.aged(g, n)
	case credit:
		charge.Credit = true
	case refund:
		charge.Refund = at(c.receipts, g.Where, n)
		if charge.Refund.Units == 0 {
			charge.Credit = true
		}
	case reserve:
		charge.Hold = g.Hold
	case commit, commitAged, cancel:
		held := c.held
		if !c.holds() {
			held = c.receipts
		}
		if charge.Release = at(held, g.Where, n); charge.Release.Units == 0 {
			charge.Force = true
		}
		switch g.Kind {
		case commitAged:
			charge.Age = c.aged(g, n)
		case cancel:
			charge.Cost = 0
		}
	}
	return charge
}

// aged returns the age of a charge; consecutive n are a microsecond apart.
func (c *counter) aged(g gene, n int) time.Duration {
	window := c.Limit.Window
	if window == 0 {
		window = time.Minute
	}
	age := window / 100 * time.Duration(100-g.Where)
	return max(0, age-time.Duration(n)*time.Microsecond).Truncate(time.Microsecond)
}

// at returns the nth receipt after a position in percent; a zero receipt if there are none.
func at(receipts []headgate.Receipt, percent, n int) headgate.Receipt {
	if len(receipts) == 0 {
		return headgate.Receipt{}
	}
	return receipts[((len(receipts)-1)*percent/100+n)%len(receipts)]
}
