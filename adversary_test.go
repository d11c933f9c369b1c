package headgate_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// scenario is a limit and the bound on what an adversary can get out of it.
type scenario struct {
	name  string
	limit headgate.Limit
	delay time.Duration // that the client of a leaky bucket accepts
	span  time.Duration // in which it maximizes the allowed units; the end is exclusive
	bound int64         // on the units allowed in the span
	reach float64       // share of the bound that the search must reach to be meaningful
}

// move is one step of a schedule. The meaning of amount depends on kind.
type move struct {
	kind   int
	amount int64
}

const (
	charge    = iota // amount units
	chargeAll        // everything that fits
	wait             // amount microseconds
	waitFit          // until a unit fits, minus amount microseconds
	waitReset        // until the counter is as if unused, minus amount microseconds
	refund           // one of the charges, counted from the last
	kinds
)

// admission is the units that were served at a time, in microseconds.
type admission struct{ at, units int64 }

// play makes the moves and returns what was allowed and not refunded, in order.
func (s *scenario) play(moves []move, start int64) []admission {
	m := meter{limit: s.limit, now: start}
	subject := headgate.Subject{8: 123, 45, 67, 89}
	look := headgate.Charge{Subject: subject, MaxDelay: s.delay}
	allowed := make([]admission, 0, len(moves))
	receipts := make([]headgate.Receipt, 0, len(moves))
	for _, move := range moves {
		c := look
		switch move.kind {
		case wait:
			m.now += move.amount
			continue
		case waitFit:
			m.now += max(0, m.preview(look, 0).RetryAfter.Microseconds()-move.amount)
			continue
		case waitReset:
			m.now += max(0, m.preview(look, 0).UnusedAfter.Microseconds()-move.amount)
			continue
		case refund:
			i := len(receipts) - 1 - int(move.amount)
			if i < 0 || receipts[i].Units == 0 {
				continue
			}
			c.Refund, c.Cost = receipts[i], receipts[i].Units
			if r := m.take(c); r.Granted > 0 || s.bucket() { // a bucket may give back less than a unit, or nothing
				allowed[i].units = 0
			}
			receipts[i] = headgate.Receipt{}
			continue
		case charge:
			c.Cost = move.amount
		case chargeAll:
			c.Cost, c.AtLeast = headgate.MaxCost, 1
		}
		if r := m.take(c); r.Granted > 0 {
			allowed = append(allowed, admission{at: m.now + r.Delay.Microseconds(), units: r.Granted})
			receipts = append(receipts, r.Receipt)
		}
	}
	return slices.DeleteFunc(allowed, func(a admission) bool { return a.units == 0 })
}

func (s *scenario) bucket() bool {
	return s.limit.Algorithm == headgate.TokenBucket || s.limit.Algorithm == headgate.LeakyBucket
}

// judge returns the largest number of units allowed in a span, and an error if a bound is broken.
func (s *scenario) judge(allowed []admission) (largest int64, broken error) {
	for i, first := range allowed {
		var units int64
		for _, last := range allowed[i:] {
			span := last.at - first.at
			if s.limit.Algorithm == headgate.LeakyBucket && units*millionth > due(s.limit, span) {
				return largest, fmt.Errorf("%d units were served in %d µs before the next", units, span)
			}
			units += last.units
			if s.limit.Algorithm == headgate.TokenBucket && (units-capacity(s.limit))*millionth > due(s.limit, span) {
				return largest, fmt.Errorf("%d units were allowed in %d µs", units, span)
			}
			if span < s.span.Microseconds() {
				largest = max(largest, units)
			}
		}
	}
	if largest > s.bound {
		return largest, fmt.Errorf("%d units were allowed in %v, the bound is %d", largest, s.span, s.bound)
	}
	return largest, nil
}

// search improves random schedules with the given kinds of moves by hill climbing. It stops at the first schedule that breaks a bound.
func (s *scenario) search(g generator, kinds, climbs, steps int) (best int64, schedule []move, broken error) {
	for range climbs {
		start := 1_700_000_000_000_000 + g.Int64N(40_000_000_000_000)
		var moves []move
		for range 8 {
			moves = append(moves, s.randomMove(g, kinds))
		}
		var reached int64
		for range steps {
			next := s.vary(g, moves, kinds)
			largest, err := s.judge(s.play(next, start))
			if err != nil {
				return largest, next, err
			}
			if largest >= reached {
				moves, reached = next, largest
			}
		}
		if reached > best {
			best, schedule = reached, moves
		}
	}
	return best, schedule, nil
}

// vary replaces, inserts, removes or repeats a few moves.
func (s *scenario) vary(g generator, moves []move, kinds int) []move {
	moves = slices.Clone(moves)
	for range 1 + g.IntN(3) {
		i := g.IntN(len(moves))
		switch g.IntN(4) {
		case 0:
			moves[i] = s.randomMove(g, kinds)
		case 1:
			if len(moves) < 20 {
				moves = slices.Insert(moves, i, s.randomMove(g, kinds))
			}
		case 2:
			if len(moves) > 2 {
				moves = slices.Delete(moves, i, i+1)
			}
		case 3:
			moves[i] = moves[g.IntN(len(moves))]
		}
	}
	return moves
}

func (s *scenario) randomMove(g generator, kinds int) move {
	m := move{kind: g.IntN(kinds)}
	span, burst := s.span.Microseconds(), capacity(s.limit)
	switch m.kind {
	case charge:
		m.amount = oneOf(g, 1, burst/2, burst-1, 1+g.Int64N(burst))
	case wait:
		m.amount = oneOf(g, 1, span/2, span-1, span-2, g.Int64N(span), g.Int64N(2*span))
	case waitFit, waitReset:
		m.amount = g.Int64N(3)
	case refund:
		m.amount = g.Int64N(4)
	}
	return m
}
