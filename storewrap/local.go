package storewrap

import (
	"time"

	"github.com/headgate/headgate"
)

// decide fills in what the store did not decide, and this node may: by its share of the limit, for charges that say so. It
// notes what else is recorded meanwhile, so that the store can be charged with it. The error is that of what is still
// undecided.
func (s *Store) decide(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	denied, refused := false, false
	var shared []int
	for i := range charges {
		c, r := &charges[i], &results[i]
		switch {
		case r.Err == nil:
			denied = denied || !r.Allowed && !c.Observe
		case !ordinary(c):
		case c.OnStoreFailure == headgate.FailLocal:
			shared = append(shared, i)
		case c.OnStoreFailure == headgate.FailDeny && !c.Observe:
			refused = true // by whoever asks
		}
	}
	if len(shared) > 0 && s.decideHere(now, charges, results, shared, denied || refused) && !denied {
		s.undo(now, charges, results)
		denied = true
	}
	s.record(now, charges, results, denied || refused)
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

// record notes charges that the store was not asked for and that are recorded all the same: those of rules that let pass, if
// the request does, and forced ones and the ends of holds in any case.
func (s *Store) record(now time.Time, charges []headgate.Charge, results []headgate.Result, denied bool) {
	for i := range charges {
		c, r := charges[i], &results[i]
		if r.Err == nil || c.Cost <= 0 || unanswered(r.Err) {
			continue
		}
		lets := ordinary(&c) && c.OnStoreFailure == headgate.FailAllow && !c.Observe && c.Hold == 0 && !denied
		forced := c.Force || c.Release.Units > 0
		if !lets && !forced {
			continue
		}
		c.Force, c.Release, c.Cost = true, headgate.Receipt{}, min(c.Cost, headgate.MaxCost)
		said := s.count(now, []headgate.Charge{c}, []bool{false}, false)[0]
		if forced {
			*r = said
		}
	}
}

// decideHere decides some of the charges by this node's share, all of them or none, and none if the request is refused
// already. It is true if they refuse it.
func (s *Store) decideHere(now time.Time, charges []headgate.Charge, results []headgate.Result, shared []int, denied bool) bool {
	asked, late := make([]headgate.Charge, len(shared)), make([]bool, len(shared))
	for i, at := range shared {
		asked[i], late[i] = charges[at], unanswered(results[at].Err)
	}
	refused := false
	for i, r := range s.count(now, asked, late, denied) {
		results[shared[i]] = r
		refused = refused || !r.Allowed && !asked[i].Observe
	}
	return refused
}

// count counts charges by this node's share. Those that are late may have been charged to the store, and are not charged to
// it again.
func (s *Store) count(now time.Time, charges []headgate.Charge, late []bool, denied bool) []headgate.Result {
	mine := s.share()
	results, states := make([]headgate.Result, len(charges)), make([]headgate.State, len(charges))
	tallies := make([]*tally, len(charges))
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	none := make([]time.Duration, len(charges)) // when to ask again, of those that have no part
	for i := range charges {
		c := &charges[i]
		scaled, wait, ok := mine.of(c, now)
		t, isNew := l.find(c, now)
		remaining, unused, heard := s.known.take(c)
		if isNew || heard || t.scale.Algorithm != scaled.Algorithm {
			t.restart(c.Limit, scaled, mine.seed(c, scaled, remaining, unused-now.Sub(s.start)), now)
		}
		t.whole, t.scale = c.Limit, scaled
		c.Limit = scaled
		if !ok && !c.Force {
			none[i], c.Cost = wait, 0
			denied = denied || !c.Observe
		}
		tallies[i], states[i], t.settled = t, t.here, false
	}
	if denied {
		headgate.Withhold(charges, states, results, now)
	} else {
		headgate.Decide(charges, states, results, now)
	}
	for i := range charges {
		c, t, r := &charges[i], tallies[i], &results[i]
		if first(tallies, i) {
			t.here = states[i]
		}
		if none[i] > 0 {
			*r = headgate.Result{RetryAfter: none[i], ResetAfter: none[i], Time: now}
		}
		r.Path, r.Nodes, r.Receipt.Local = headgate.PathLocal, int(mine.nodes), r.Receipt.Units > 0
		switch {
		case r.Granted == 0 || held(c):
		case late[i]:
			forced := t.charge()
			forced.Force, forced.Cost = true, r.Granted
			t.there, _ = t.scale.Take(t.there, forced, now)
		default:
			l.owes(t, true)
			if s.present(t) {
				s.settleSoon()
			}
		}
	}
	return results
}

// held is true of charges whose units are held and not recorded.
func held(c *headgate.Charge) bool {
	return c.Hold > 0 && c.Limit.Algorithm != headgate.LeakyBucket && c.Limit.Algorithm != headgate.SlidingLog
}

// first is true of the first charge on a tally, which has its state.
func first(tallies []*tally, i int) bool {
	for _, t := range tallies[:i] {
		if t == tallies[i] {
			return false
		}
	}
	return true
}

// share is this node's, by the number of nodes that was last heard.
func (s *Store) share() share { return share{s.salt, s.nodes.Load(), int64(s.percent)} }

// giveBack ends what this node has admitted or held by itself, as far as its own count goes.
func (s *Store) giveBack(now time.Time, c headgate.Charge, result []headgate.Result) {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Release.Local {
		c.Cost = 0
	}
	if t := l.index[counter{c.Subject, c.Counter}]; t != nil {
		c.Limit = t.scale
		t.here, result[0] = t.scale.Take(t.here, c, now)
	} else {
		result[0] = headgate.Result{Allowed: true, Time: now}
	}
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
