package storewrap

import (
	"time"

	"github.com/headgate/headgate"
)

// usual is how many charges a request has at the most, to be decided from what this node knows and holds.
const usual = 8

// step is what becomes of one charge.
type step struct {
	lease  *lease // that its units were taken from
	number int64
	ahead  int64 // units to ask the store for, beyond its own
}

// plain is true of requests that may be decided here at all. The others are about what a store has recorded, or what it would
// say, or have a limit on trial, which is counted also when its twin refuses, or several charges on one counter.
func plain(charges []headgate.Charge) bool {
	for i := range charges {
		c := &charges[i]
		if c.Cost <= 0 || c.Limit.Count <= 0 || c.AtLeast != 0 || c.Hold != 0 || c.Twin != 0 || !ordinary(c) {
			return false
		}
		for j := range i {
			if charges[j].Counter == c.Counter && charges[j].Subject == c.Subject {
				return false
			}
		}
	}
	return len(charges) <= usual
}

// here decides what this node knows or holds, and plans the rest. It is how many charges the store must be asked about, or -1
// if the request is refused.
func (s *Store) here(now instant, charges []headgate.Charge, results []headgate.Result, steps []step) int {
	nodes := s.nodes.Load()
	asks := 0
	for i := range charges {
		switch r := &results[i]; s.step(&charges[i], r, &steps[i], now, nodes) {
		case refused:
			r.Nodes = int(nodes)
			s.restore(charges[:i], results[:i], steps[:i])
			for j := range results {
				if j != i {
					results[j] = headgate.Result{Allowed: true, Path: headgate.PathNone}
				}
			}
			return -1
		case spent:
			r.Nodes = int(nodes)
		default:
			asks++
		}
	}
	return asks
}

type outcome uint8

const (
	ask outcome = iota
	spent
	refused
)

// step decides one charge, or plans how to ask for it.
func (s *Store) step(c *headgate.Charge, r *headgate.Result, p *step, now instant, nodes int64) outcome {
	if c.Strict {
		return ask
	}
	set, mu := s.known.lock(c)
	defer mu.Unlock()
	e := set.find(c)
	if e == nil || e.limit != numbers(&c.Limit) {
		return ask
	}
	e.needed = now
	e.demand.see(now)
	switch {
	case e.spend(c, r, now):
		p.lease, p.number = e.lease, e.lease.number
		r.Time = e.time(now)
		return spent
	case e.refuses(c, r, now):
		r.Time = e.time(now)
		return refused
	case leasable(c):
		p.ahead = e.wants(c, now, nodes)
	}
	return ask
}

// restore gives back what was spent here for a request that is refused elsewhere, and lets others ask for what it would have.
func (s *Store) restore(charges []headgate.Charge, results []headgate.Result, steps []step) {
	for i := range steps {
		p := &steps[i]
		if p.lease == nil && p.ahead == 0 {
			continue
		}
		set, mu := s.known.lock(&charges[i])
		e := set.find(&charges[i])
		if e != nil && p.ahead > 0 {
			e.demand.asking = false
		}
		switch {
		case p.lease == nil:
		case e != nil && e.lease == p.lease && e.lease.number == p.number && time.Since(s.start) < e.lease.end:
			e.lease.units += charges[i].Cost
		default: // it has ended meanwhile
			if undo, ok := charges[i].Undo(&results[i]); ok {
				s.known.leases.giveBack(undo)
			}
		}
		mu.Unlock()
	}
}

// learn notes what the store has said of a charge: what is left, whether it refuses, what it has granted in advance.
func (s *Store) learn(c *headgate.Charge, r *headgate.Result, ahead int64, sent instant) {
	if r.Err != nil || r.Path == headgate.PathLocal {
		if ahead > 0 {
			s.restore([]headgate.Charge{*c}, nil, []step{{ahead: ahead}})
		}
		return
	}
	if c.Strict && c.OnStoreFailure != headgate.FailLocal {
		return
	}
	set, mu := s.known.lock(c)
	defer mu.Unlock()
	e := s.known.claim(set, c, sent)
	e.clock = r.Time.UnixMicro() - sent.Microseconds()
	if c.OnStoreFailure == headgate.FailLocal && !c.Observe {
		e.unused = sent + r.ResetAfter
	}
	if elapsed := sent - e.heard; elapsed > time.Millisecond {
		e.demand.burn = float64(e.remaining-r.Remaining) / float64(elapsed)
		e.heard = sent
	}
	e.remaining = r.Remaining
	if c.Cost == 0 && e.lease != nil && sent < e.lease.end {
		r.Remaining = min(r.Remaining+e.lease.units, c.Limit.Capacity())
	}
	if !ordinary(c) {
		e.denial.until = min(e.denial.until, sent) // it may have given back what was refused
	}
	if c.Strict || c.Cost <= 0 || !ordinary(c) {
		return
	}
	e.demand.needs(c.Cost, sent)
	if ahead > 0 {
		e.demand.asking = false
	}
	switch {
	case !r.Allowed && !c.Observe && r.Remaining >= c.Cost: // another charge on it was in the way, or too many holds
	case !r.Allowed && !c.Observe:
		e.deny(c, r, sent, s.nodes.Load())
	case r.Granted > 0:
		s.known.mistaken.Add(e.denial.mistaken(c, r, sent))
		e.denial.until, e.denial.span, e.denial.times = min(e.denial.until, sent), 0, 0
		if ahead > 0 && r.Granted < c.Cost+ahead {
			e.exhausted(r, sent)
		}
		if r.Granted > c.Cost {
			s.known.grant(e, c, r, sent)
		}
	}
}
