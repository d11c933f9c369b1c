package storewrap

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// maxLocal is how many counters a node keeps by itself.
const maxLocal = 200_000

// decide fills in what the store did not decide, and this node may: by its share of the limit, for charges that say so. The
// error is that of what is still undecided.
func (s *Store) decide(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	denied := false
	var ours []int
	for i := range charges {
		c, r := &charges[i], &results[i]
		switch {
		case r.Err == nil:
			denied = denied || !r.Allowed && !c.Observe
		case ordinary(c) && c.OnStoreFailure == headgate.FailLocal:
			ours = append(ours, i)
		}
	}
	if len(ours) > 0 && s.decideHere(now, charges, results, ours, denied) && !denied {
		s.undo(now, charges, results)
	}
	for i := range results {
		if results[i].Err != nil {
			return results[i].Err
		}
	}
	return nil
}

// ordinary is true of charges that a node may decide by itself. The others are about what a store has recorded.
func ordinary(c *headgate.Charge) bool {
	return c.Refund.Units == 0 && c.Release.Units == 0 && !c.Force && !c.Credit
}

// decideHere decides some of the charges by this node's share, all of them or none, and none if the store has refused the
// request. It is true if they refuse it.
func (s *Store) decideHere(now time.Time, charges []headgate.Charge, results []headgate.Result, ours []int, denied bool) bool {
	mine := s.share()
	asked, said := make([]headgate.Charge, 0, len(ours)), make([]headgate.Result, len(ours))
	refused := false
	for _, i := range ours {
		c := charges[i]
		limit, wait, ok := mine.of(&c, now)
		if !ok {
			results[i] = headgate.Result{RetryAfter: wait, ResetAfter: wait, Time: now, Path: headgate.PathLocal}
			refused = refused || !c.Observe
			continue
		}
		c.Limit = limit
		s.seed(&mine, &charges[i], &c, now)
		asked = append(asked, c)
	}
	if denied || refused {
		for i := range asked {
			asked[i].Cost = 0
		}
	}
	said = said[:len(asked)]
	_ = s.local.Take(context.Background(), asked, said) // it does not fail
	next := 0
	for _, i := range ours {
		if results[i].Err == nil {
			continue // it has no part
		}
		r := said[next]
		next++
		r.Path, r.Nodes, r.Receipt.Local = headgate.PathLocal, int(mine.nodes), r.Receipt.Units > 0
		results[i] = r
		refused = refused || !r.Allowed && !charges[i].Observe
	}
	return refused
}

// seed makes this node's count begin where the store's ended, for a counter that it has not counted by itself yet.
func (s *Store) seed(mine *share, whole, scaled *headgate.Charge, now time.Time) {
	remaining, known := s.known.take(whole, now.Sub(s.start))
	if !known {
		return
	}
	left := mine.draw(whole, 1, mine.fraction(remaining))
	if used := scaled.Limit.Capacity() - left; used > 0 {
		c := headgate.Charge{Subject: scaled.Subject, Counter: scaled.Counter, Limit: scaled.Limit, Cost: used, Force: true}
		_ = s.local.Take(context.Background(), []headgate.Charge{c}, make([]headgate.Result, 1))
	}
}

// share is this node's, by the number of nodes that was last heard.
func (s *Store) share() share { return share{s.salt, s.nodes.Load(), int64(s.percent)} }

// giveBack ends what this node has admitted or held by itself, as far as its own count goes.
func (s *Store) giveBack(now time.Time, c headgate.Charge, result []headgate.Result) {
	mine := s.share()
	c.Limit, _, _ = mine.of(&c, now)
	if c.Release.Local {
		c.Cost = 0
	}
	_ = s.local.Take(context.Background(), []headgate.Charge{c}, result) // it does not fail
	result[0].Path = headgate.PathLocal
}

// undo gives back what the store has granted to a request that this node's share refuses.
func (s *Store) undo(now time.Time, charges []headgate.Charge, results []headgate.Result) {
	var back []headgate.Charge
	for i := range results {
		r := &results[i]
		if r.Err != nil || r.Path == headgate.PathLocal {
			continue
		}
		if undo, ok := charges[i].Undo(r); ok {
			back = append(back, undo)
			r.Granted, r.Receipt = 0, headgate.Receipt{}
		}
	}
	if len(back) > 0 {
		_ = s.caller.take(now, back, make([]headgate.Result, len(back))) // what is lost is on the safe side
	}
}
