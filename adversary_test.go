package headgate_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// scenario is a limit and what somebody who tries hard may get out of it.
type scenario struct {
	name  string
	limit headgate.Limit
	delay time.Duration // that the client of a leaky bucket puts up with
	span  time.Duration // in which it wants to be admitted as often as possible; its end is not in it
	bound int64         // on the units admitted in the span
	reach float64       // share of the bound that a search must find, or it has no teeth
}

// move is one step of a schedule; what its amount means depends on its kind.
type move struct {
	kind   int
	amount int64
}

const (
	charge    = iota // amount units
	chargeAll        // whatever fits
	wait             // amount microseconds
	waitFit          // until a unit fits, less amount
	waitReset        // until the counter is as new, less amount
	refund           // one of the charges, counted from the last
	kinds
)

// admission is units that went on at a time, in microseconds.
type admission struct{ at, units int64 }

// play makes the moves and returns what was admitted and not given back, in order.
func (s *scenario) play(moves []move, start int64) []admission {
	m := meter{limit: s.limit, now: start}
	subject := headgate.Subject{8: 123, 45, 67, 89}
	look := headgate.Charge{Subject: subject, MaxDelay: s.delay}
	admitted := make([]admission, 0, len(moves))
	receipts := make([]headgate.Receipt, 0, len(moves))
	for _, move := range moves {
		c := look
		switch move.kind {
		case wait:
			m.now += move.amount
			continue
		case waitFit:
			m.now += max(0, m.ask(look, 0).RetryAfter.Microseconds()-move.amount)
			continue
		case waitReset:
			m.now += max(0, m.ask(look, 0).UnusedAfter.Microseconds()-move.amount)
			continue
		case refund:
			i := len(receipts) - 1 - int(move.amount)
			if i < 0 || receipts[i].Units == 0 {
				continue
			}
			c.Refund, c.Cost = receipts[i], receipts[i].Units
			if r := m.take(c); r.Granted > 0 || s.bucket() { // a bucket may give back less than a unit, or nothing any more
				admitted[i].units = 0
			}
			receipts[i] = headgate.Receipt{}
			continue
		case charge:
			c.Cost = move.amount
		case chargeAll:
			c.Cost, c.AtLeast = headgate.MaxCost, 1
		}
		if r := m.take(c); r.Granted > 0 {
			admitted = append(admitted, admission{at: m.now + r.Delay.Microseconds(), units: r.Granted})
			receipts = append(receipts, r.Receipt)
		}
	}
	return slices.DeleteFunc(admitted, func(a admission) bool { return a.units == 0 })
}

func (s *scenario) bucket() bool {
	return s.limit.Algorithm == headgate.TokenBucket || s.limit.Algorithm == headgate.LeakyBucket
}

// judge returns the most units admitted in a span, and what bound is broken, if one is.
func (s *scenario) judge(admitted []admission) (most int64, broken error) {
	for i, first := range admitted {
		var units int64
		for _, last := range admitted[i:] {
			span := last.at - first.at
			if s.limit.Algorithm == headgate.LeakyBucket && units*millionth > due(s.limit, span) {
				return most, fmt.Errorf("%d units went on in %d µs before the next", units, span)
			}
			units += last.units
			if s.limit.Algorithm == headgate.TokenBucket && (units-capacity(s.limit))*millionth > due(s.limit, span) {
				return most, fmt.Errorf("%d units were admitted in %d µs", units, span)
			}
			if span < s.span.Microseconds() {
				most = max(most, units)
			}
		}
	}
	if most > s.bound {
		return most, fmt.Errorf("%d units were admitted in %v, the bound is %d", most, s.span, s.bound)
	}
	return most, nil
}

// search climbs from random schedules to better ones, with the given kinds of moves, and stops at the first that breaks
// a bound.
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
			most, err := s.judge(s.play(next, start))
			if err != nil {
				return most, next, err
			}
			if most >= reached {
				moves, reached = next, most
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
	span, most := s.span.Microseconds(), capacity(s.limit)
	switch m.kind {
	case charge:
		m.amount = oneOf(g, 1, most/2, most-1, 1+g.Int64N(most))
	case wait:
		m.amount = oneOf(g, 1, span/2, span-1, span-2, g.Int64N(span), g.Int64N(2*span))
	case waitFit, waitReset:
		m.amount = g.Int64N(3)
	case refund:
		m.amount = g.Int64N(4)
	}
	return m
}
