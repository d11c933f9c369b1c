package storewrap

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// cache is what this node knows about counters: the store's last result, and the units leased from it. It has space for
// 65,536 counters, in sets of four. In a full set the least recently used counter is evicted.
type cache struct {
	fleet *fleet
	agent *agent
	start time.Time
	salt  uint64 // so that clients cannot choose which counters share a set
	table [cacheShards]struct {
		mu   sync.Mutex
		sets []cacheSet // allocated on first use
		_    [64]byte
	}
	leases atomic.Int64 // number of the last lease; 0 if there never was one

	falseDenials, evicted atomic.Int64
}

// instant is a time on this node's monotonic clock. It counts from one second before the store was created, so that 0 is in
// the past.
type instant = time.Duration

// entry is what the cache knows about one counter.
type entry struct {
	counter  headgate.Counter
	limit    headgate.Limit
	lastUsed instant // when it was last used; 0 if the entry is empty

	last   lastResult
	demand demand
	// lease is spent first, spare next. acquiring is the acquisition in progress, or nil.
	lease, spare *lease
	acquiring    *acquisition
	// returned is when the store last answered a return of this node's units.
	returned instant
}

func newCache(f *fleet, a *agent) *cache {
	return &cache{fleet: f, agent: a, start: time.Now().Add(-time.Second), salt: rand.Uint64()} //nolint:gosec // it is not a secret
}

func (c *cache) now() instant { return time.Since(c.start) }

// at converts a time to an instant.
func (c *cache) at(t time.Time) instant { return t.Sub(c.start) }

// decide decides the request if the cache can, and reports whether it did. It denies a request only if it knows the state of
// all of its limits, so that the decision shows each of them.
func (c *cache) decide(p *plan) bool {
	if p.isCacheable = cacheable(p.charges); !p.isCacheable {
		return false
	}
	now := c.now()
	denials, unknowns, undecided := 0, 0, 0
	for i := range p.charges {
		charge := &p.charges[i]
		v := c.evaluate(now, charge, &p.results[i], &p.lookups[i])
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
	case denials == 0 && unknowns == 0 && c.throttleContended(p, now):
		c.unspend(p, now)
		return true
	}
	return false
}

// evaluate returns what the cache knows about one charge, and spends its units if they are leased.
func (c *cache) evaluate(now instant, charge *headgate.Charge, r *headgate.Result, s *lookup) verdict {
	if charge.Strict && c.leases.Load() == 0 {
		return unknown
	}
	e, mu := c.lock(charge.Subject, charge.Counter)
	defer mu.Unlock()
	if e == nil || e.limit != charge.Limit {
		return unknown
	}
	e.lastUsed = now
	s.holdsLease = e.lease != nil || e.spare != nil
	if charge.Strict {
		return unknown
	}
	e.demand.count(now, charge.Cost)
	if l := e.spend(charge, r, now); l != nil {
		s.verdict, s.lease = spent, l
		if l.low() && e.spare == nil {
			c.acquire(e, charge, now)
		}
	} else {
		s.verdict = e.last.evaluate(charge, r, now)
	}
	if s.verdict == denied {
		e.demand.denials++
	}
	if s.verdict != unknown {
		r.Time, r.Nodes = e.last.time(now), int32(c.fleet.size())
	}
	return s.verdict
}

// throttleContended lets one request at a time through to the store for units of a contended counter, and then the agent for
// more. It reports whether this request is denied until those units have arrived.
func (c *cache) throttleContended(p *plan, now instant) bool {
	waits := false
	for i := range p.charges {
		s, charge, r := &p.lookups[i], &p.charges[i], &p.results[i]
		if s.verdict != fits || charge.Observe {
			continue
		}
		e, mu := c.lock(charge.Subject, charge.Counter)
		wait := time.Duration(0)
		if e != nil {
			wait = e.contention(charge, c.fleet.sharing(charge), now)
		}
		switch {
		case wait == 0:
		case e.acquiring != nil && now < e.acquiring.since+acquireTurn:
			waits, s.verdict = true, denied
			r.Allowed, r.Remaining, r.RetryAfter = false, 0, e.acquiring.since+acquireTurn-now
			e.demand.denials++
		default:
			e.last.deny(now, min(wait, acquireTurn))
		}
		mu.Unlock()
	}
	return waits
}

// unspend puts back the leased units of a request that another limit denies, and clears the charges' grants.
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
		} else if back, ok := charge.Undo(r); ok { // the lease has ended in the meantime
			c.agent.enqueueReturns(back)
		}
		mu.Unlock()
		s.verdict = fits
		r.Granted, r.Receipt, r.Remaining, r.Path = 0, headgate.Receipt{}, r.Remaining+charge.Cost, headgate.PathCache
	}
}

// attachReturns ends this node's leases on the counters that are sent to the store, and attaches their return to the call, so
// that the store's result includes these units.
func (c *cache) attachReturns(p *plan) {
	p.returns = nil
	if c.leases.Load() == 0 {
		return
	}
	for i := range p.charges {
		charge := &p.charges[i]
		if p.isCacheable && !p.lookups[i].holdsLease || p.decided(i) || !ordinary(charge) && !charge.Credit {
			continue
		}
		e, mu := c.lock(charge.Subject, charge.Counter)
		if e != nil {
			returns := e.returnLeases(charge.Subject)
			c.agent.beginReturns(returns)
			p.returns = append(p.returns, returns...)
		}
		mu.Unlock()
	}
}

// deniedOwnUnits reports whether the store denied a charge on a counter of which this node holds units, is acquiring or
// returning some, or has returned some since the call was sent.
func (c *cache) deniedOwnUnits(p *plan) bool {
	if c.leases.Load() == 0 {
		return false
	}
	charges, results := p.sentCharges()
	for i := range charges {
		charge := &charges[i]
		if !denies(charge, &results[i]) || results[i].Path != "" || results[i].RetryAfter == headgate.Never {
			continue
		}
		e, mu := c.lock(charge.Subject, charge.Counter)
		// isReturning is called under the lock: in between, units must not change from held to returning.
		own := e != nil && (e.acquiring != nil || e.held(c.now()) > 0 || e.returned >= p.sentAt) ||
			c.agent.isReturning(charge.Subject, charge.Counter)
		mu.Unlock()
		if own {
			return true
		}
	}
	return false
}

// awaitOwnUnits waits until pending acquisitions and returns on the request's counters have completed, up to a deadline, and
// prepares the request to be sent again.
func (c *cache) awaitOwnUnits(p *plan, deadline time.Duration) {
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	for i := range p.charges {
		charge := &p.charges[i]
		e, mu := c.lock(charge.Subject, charge.Counter)
		var pending *acquisition
		if e != nil {
			pending = e.acquiring
		}
		mu.Unlock()
		if pending != nil {
			select {
			case <-pending.done:
			case <-timer.C:
				return
			}
		}
		for c.agent.isReturning(charge.Subject, charge.Counter) {
			select {
			case <-time.After(batchDelay / 4):
			case <-timer.C:
				return
			}
		}
	}
	for i := range p.lookups {
		p.lookups[i] = lookup{holdsLease: true}
	}
}

// observe records the store's results, and acquires leases where that saves calls.
func (c *cache) observe(p *plan, began time.Time) {
	sent, now := c.at(began), c.now()
	charges, results := p.sentCharges()
	for i := range charges {
		c.observeOne(&charges[i], &results[i], p.isCacheable, sent, now)
	}
	if p.denied() {
		c.unspend(p, now)
	}
}

// observeOne records the result of one charge. It recalls the leases of other nodes after a denial.
func (c *cache) observeOne(charge *headgate.Charge, r *headgate.Result, isCacheable bool, sent, now instant) {
	if concurrent(charge) || r.Err != nil || r.Path == headgate.PathLocal || charge.Strict && charge.OnStoreFailure != headgate.FailLocal {
		return
	}
	e, mu := c.getOrCreate(charge, now)
	defer mu.Unlock()
	nodes := c.fleet.sharing(charge)
	e.demand.sample(charge, r, now)
	granted := r.Allowed && r.Granted > 0
	c.falseDenials.Add(e.last.falseDenials(charge, r, now))
	shared := nodes > 1 && leasable(charge, nodes)
	denial := e.last.observe(charge, r, isCacheable, shared, sent, now)
	switch {
	case charge.Strict || !isCacheable:
	case granted:
		c.acquire(e, charge, now)
	case denial && !charge.Observe:
		e.demand.denied = now
		e.demand.denials++
		if wait := e.contention(charge, nodes, now); wait > r.RetryAfter && r.RetryAfter > 0 {
			r.RetryAfter = wait
			e.last.deny(now, wait)
		}
		if shared && now >= e.demand.noLeaseUntil {
			e.demand.noLeaseUntil = now + quietAfterRecall
			c.agent.recall(charge.Subject, charge.Counter)
		}
	}
}

// reconciled records the store's result of a charge made by reconciliation.
func (c *cache) reconciled(charge *headgate.Charge, r *headgate.Result, began time.Time) {
	c.observeOne(charge, r, false, c.at(began), c.now())
}

// recall returns this node's units of a counter on which another node was denied. The counter is not leased again for
// quietAfterRecall.
func (c *cache) recall(subject headgate.Subject, counter headgate.Counter) {
	e, mu := c.lock(subject, counter)
	defer mu.Unlock()
	if e != nil {
		e.demand.noLeaseUntil = c.now() + quietAfterRecall
		c.agent.enqueueReturns(e.returnLeases(subject)...)
	}
}

// lastKnown returns how many units the store last reported as remaining, and for how long that matters. It returns them once:
// after that the ledger's own count is used until the store reports again.
func (c *cache) lastKnown(charge *headgate.Charge) (remaining int64, lasts time.Duration, ok bool) {
	e, mu := c.lock(charge.Subject, charge.Counter)
	defer mu.Unlock()
	if e == nil || e.last.fallbackUntil == 0 {
		return 0, 0, false
	}
	lasts = e.last.fallbackUntil - c.now()
	e.last.fallbackUntil = 0
	return e.last.remaining, lasts, true
}

// isKnown reports whether lastKnown would return something.
func (c *cache) isKnown(subject headgate.Subject, counter headgate.Counter) bool {
	e, mu := c.lock(subject, counter)
	defer mu.Unlock()
	return e != nil && e.last.fallbackUntil != 0
}
