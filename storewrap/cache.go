package storewrap

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// cache is what this node knows of counters: what the store said last, and the units leased from it. It has room for 65,536
// counters, in sets of four; in a full set the least recently needed is evicted.
type cache struct {
	fleet *fleet
	agent *agent
	start time.Time
	salt  uint64 // so that clients cannot choose what shares a set
	table [cacheShards]struct {
		mu   sync.Mutex
		sets []cacheSet // allocated when the first is needed
		_    [64]byte
	}
	leases atomic.Int64 // numbers them, and tells whether there ever was one

	falseDenials, evicted atomic.Int64
}

// instant is a time on this node's monotonic clock: since a second before the store was made, so that 0 is long ago.
type instant = time.Duration

// entry is one counter.
type entry struct {
	counter headgate.Counter
	limit   headgate.Limit
	needed  instant

	last   lastAnswer
	demand demand
	// The lease that is being spent, and the one after it; the acquisition under way, if there is one.
	lease, spare *lease
	acquiring    *acquisition
	// returned is when the store last answered a return of this node's units.
	returned instant
}

func newCache(f *fleet, a *agent) *cache {
	return &cache{fleet: f, agent: a, start: time.Now().Add(-time.Second), salt: rand.Uint64()} //nolint:gosec // no secret is made of it
}

func (c *cache) now() instant { return time.Since(c.start) }

// at converts a time of this node's clock.
func (c *cache) at(t time.Time) instant { return t.Sub(c.start) }

// decide answers the request if this node knows or holds enough, and reports whether it did. A denial is answered only if all
// limits of the request are known: it is the whole truth about that request.
func (c *cache) decide(p *plan) bool {
	if p.plain = cacheable(p.charges); !p.plain {
		return false
	}
	now := c.now()
	denials, unknowns, undecided := 0, 0, 0
	for i := range p.charges {
		charge := &p.charges[i]
		v := c.judge(now, charge, &p.results[i], &p.lookups[i])
		switch {
		case v == denied && !charge.Observe:
			denials++
		case v == unknown:
			unknowns++
			undecided++
		case v == fits:
			undecided++
		}
	}
	switch {
	case denials > 0 && unknowns == 0:
		c.unspend(p, now)
		return true
	case denials == 0 && undecided == 0:
		return true
	case denials == 0 && unknowns == 0 && c.takeTurns(p, now):
		c.unspend(p, now)
		return true
	}
	return false
}

// judge says what is known of one charge, and spends its units if they are leased.
func (c *cache) judge(now instant, charge *headgate.Charge, r *headgate.Result, s *lookup) verdict {
	if charge.Strict && c.leases.Load() == 0 {
		return unknown
	}
	e, mu := c.lock(charge.Subject, charge.Counter)
	defer mu.Unlock()
	if e == nil || e.limit != charge.Limit {
		return unknown
	}
	e.needed = now
	s.holds = e.lease != nil || e.spare != nil
	if charge.Strict {
		return unknown
	}
	e.demand.see(now, charge.Cost)
	if l := e.spend(charge, r, now); l != nil {
		s.verdict, s.lease = spent, l
		if l.low() && e.spare == nil {
			c.acquire(e, charge, now)
		}
	} else {
		s.verdict = e.last.judge(charge, r, now)
	}
	if s.verdict == denied {
		e.demand.denials++
	}
	if s.verdict != unknown {
		r.Time, r.Nodes = e.last.time(now), int32(c.fleet.size())
	}
	return s.verdict
}

// takeTurns lets one request at a time ask for units of a contended counter, and then the agent for more. It reports whether the
// request is denied until those are there.
func (c *cache) takeTurns(p *plan, now instant) bool {
	waits := false
	for i := range p.charges {
		s, charge, r := &p.lookups[i], &p.charges[i], &p.results[i]
		if s.verdict != fits || charge.Observe {
			continue
		}
		e, mu := c.lock(charge.Subject, charge.Counter)
		wait := time.Duration(0)
		if e != nil {
			wait = e.contention(charge, c.fleet.size(), now)
		}
		switch {
		case wait == 0:
		case e.acquiring != nil && now < e.acquiring.since+turn:
			waits, s.verdict = true, denied
			r.Allowed, r.Remaining, r.RetryAfter = false, 0, e.acquiring.since+turn-now
			e.demand.denials++
		default:
			e.last.deny(now, min(wait, turn))
		}
		mu.Unlock()
	}
	return waits
}

// unspend puts back what was spent for a request that is denied by another limit, and shows the charges as not made.
func (c *cache) unspend(p *plan, now instant) {
	for i := range min(maxCacheable, len(p.charges)) {
		s, charge, r := &p.lookups[i], &p.charges[i], &p.results[i]
		if s.verdict != spent {
			continue
		}
		e, mu := c.lock(charge.Subject, charge.Counter)
		if e != nil && (e.lease == s.lease || e.spare == s.lease) && now < s.lease.end {
			s.lease.units += charge.Cost
			e.demand.units -= charge.Cost
		} else if back, ok := charge.Undo(r); ok { // it has ended meanwhile
			c.agent.returnSoon(back)
		}
		mu.Unlock()
		s.verdict = fits
		r.Granted, r.Receipt, r.Remaining, r.Path = 0, headgate.Receipt{}, r.Remaining+charge.Cost, headgate.PathCache
	}
}

// bringHome takes this node's own leases on counters that the store is asked about, to be returned with the question: the answer
// then is about all that there is.
func (c *cache) bringHome(p *plan) {
	p.returns = nil
	if c.leases.Load() == 0 {
		return
	}
	for i := range p.charges {
		charge := &p.charges[i]
		if p.plain && !p.lookups[i].holds || p.decided(i) || !ordinary(charge) && !charge.Credit {
			continue
		}
		e, mu := c.lock(charge.Subject, charge.Counter)
		if e != nil {
			returns := e.surrender(charge.Subject)
			c.agent.beginReturns(returns)
			p.returns = append(p.returns, returns...)
		}
		mu.Unlock()
	}
}

// deniedOwnUnits reports whether the store denied a charge on a counter of which this node holds units, or is acquiring or
// returning some, or has returned some since the store was asked.
func (c *cache) deniedOwnUnits(p *plan) bool {
	if c.leases.Load() == 0 {
		return false
	}
	charges, results := p.asked()
	for i := range charges {
		charge := &charges[i]
		if !denies(charge, &results[i]) || results[i].Path != "" || results[i].RetryAfter == headgate.Never {
			continue
		}
		e, mu := c.lock(charge.Subject, charge.Counter)
		own := e != nil && (e.acquiring != nil || e.held(c.now()) > 0 || e.returned >= p.sent) ||
			c.agent.isReturning(charge.Subject, charge.Counter) // before a held unit can become a returning one
		mu.Unlock()
		if own {
			return true
		}
	}
	return false
}

// awaitOwnUnits waits until the agent has acquired or returned what it is about to on the request's counters, up to a deadline,
// and prepares the request to be asked again.
func (c *cache) awaitOwnUnits(p *plan, deadline time.Duration) {
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	for i := range p.charges {
		charge := &p.charges[i]
		e, mu := c.lock(charge.Subject, charge.Counter)
		var under *acquisition
		if e != nil {
			under = e.acquiring
		}
		mu.Unlock()
		if under != nil {
			select {
			case <-under.done:
			case <-timer.C:
				return
			}
		}
		for c.agent.isReturning(charge.Subject, charge.Counter) {
			select {
			case <-time.After(gatherFor / 4):
			case <-timer.C:
				return
			}
		}
	}
	for i := range p.lookups {
		p.lookups[i] = lookup{holds: true}
	}
}

// observe notes what the store said, and acquires units in advance where that pays.
func (c *cache) observe(p *plan, asked time.Time) {
	sent, now := c.at(asked), c.now()
	charges, results := p.asked()
	for i := range charges {
		c.observeOne(&charges[i], &results[i], p.plain, sent, now)
	}
	if p.denied() {
		c.unspend(p, now)
	}
}

func (c *cache) observeOne(charge *headgate.Charge, r *headgate.Result, plain bool, sent, now instant) {
	if r.Err != nil || r.Path == headgate.PathLocal || charge.Strict && charge.OnStoreFailure != headgate.FailLocal {
		return
	}
	e, mu := c.getOrCreate(charge, now)
	defer mu.Unlock()
	nodes := c.fleet.size()
	e.demand.sample(charge, r, now)
	granted := r.Allowed && r.Granted > 0
	c.falseDenials.Add(e.last.falseDenials(charge, r, now))
	shared := nodes > 1 && leasable(charge, nodes)
	denial := e.last.observe(charge, r, plain, shared, sent, now)
	switch {
	case charge.Strict || !plain:
	case granted:
		c.acquire(e, charge, now)
	case denial && !charge.Observe:
		e.demand.denied = now
		e.demand.denials++
		if wait := e.contention(charge, nodes, now); wait > r.RetryAfter && r.RetryAfter > 0 {
			r.RetryAfter = wait
			e.last.deny(now, wait)
		}
		if shared && now >= e.demand.quiet {
			e.demand.quiet = now + quietAfterRecall
			c.agent.recall(charge.Subject, charge.Counter)
		}
	}
}

// reconciled notes what the store said when it was charged afterwards.
func (c *cache) reconciled(charge *headgate.Charge, r *headgate.Result, asked time.Time) {
	c.observeOne(charge, r, false, c.at(asked), c.now())
}

// recall returns what this node holds of a counter that another was denied on, and leases nothing more of it for a while.
func (c *cache) recall(subject headgate.Subject, counter headgate.Counter) {
	e, mu := c.lock(subject, counter)
	defer mu.Unlock()
	if e != nil {
		e.demand.quiet = c.now() + quietAfterRecall
		c.agent.returnSoon(e.surrender(subject)...)
	}
}

// lastKnown returns what the store last said was left, and for how long that matters, once: from then on the ledger's own count
// goes on until the store says more.
func (c *cache) lastKnown(charge *headgate.Charge) (remaining int64, lasts time.Duration, ok bool) {
	e, mu := c.lock(charge.Subject, charge.Counter)
	defer mu.Unlock()
	if e == nil || e.last.unread == 0 {
		return 0, 0, false
	}
	lasts = e.last.unread - c.now()
	e.last.unread = 0
	return e.last.remaining, lasts, true
}

// isKnown reports whether lastKnown has something to say.
func (c *cache) isKnown(subject headgate.Subject, counter headgate.Counter) bool {
	e, mu := c.lock(subject, counter)
	defer mu.Unlock()
	return e != nil && e.last.unread != 0
}
