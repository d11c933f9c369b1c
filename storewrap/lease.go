package storewrap

import (
	"time"

	"github.com/headgate/headgate"
)

const (
	// maxTerm is how long a lease lasts at most.
	maxTerm = 4 * time.Second
	// shortTerm is how long it lasts on a counter of which half is used.
	shortTerm = 500 * time.Millisecond
	// leasedPart of a limit is what all nodes together may hold, as one in so many; edgePart where the limit may run out within
	// edgeAhead.
	leasedPart = 20
	edgePart   = 1_000
	edgeAhead  = 2 * time.Second
	// edgeTerm is how long a lease then lasts at most. Nothing is leased of a limit that may run out within half of it.
	edgeTerm = 100 * time.Millisecond
	// growth is how much larger than the last one a lease may be.
	growth = 4
	// sampleEvery is how often the pace of the other nodes is measured. Before the first time nothing is leased: a burst may use
	// up a counter in no time.
	sampleEvery = 250 * time.Millisecond
	// quietAfterRecall is how long nothing is leased of a counter that was used up.
	quietAfterRecall = time.Second
	// idleAfter is how long a lease is kept without a request; longer where requests come less often, idleGaps of them.
	idleAfter = 250 * time.Millisecond
	idleGaps  = 4
	// rollGuard is how long before a sliding window rolls its leases end: units cannot go back to a window that is over.
	rollGuard = 50 * time.Millisecond
	// maxContention is how long a node lets units come back to a counter at its limit that it is asked for often, so that they
	// are worth a call: that long per request and second, from contended requests a second on.
	maxContention        = 40 * time.Millisecond
	contentionPerRequest = 5 * time.Microsecond
	contended            = 1_000
	// turn is how long one request that asks for units of such a counter, and the lease that follows, keep others from asking.
	turn = 5 * time.Millisecond
)

// lease is units that were charged to the store in advance, to be spent by this node.
type lease struct {
	units   int64 // left
	granted int64
	end     instant
	idle    time.Duration // it is returned after so long without a request
	receipt headgate.Receipt
	number  int64
}

// has reports whether the lease has so many units left.
func (l *lease) has(units int64, now instant) bool {
	return l != nil && l.units >= units && now < l.end
}

// low reports whether it is time for the next lease.
func (l *lease) low() bool { return 4*l.units <= l.granted }

// demand is how fast units of a counter are used: by this node, and by the others.
type demand struct {
	seenAt instant // units are counted since
	units  int64
	rate   float64 // units asked for here, denied ones included, per nanosecond

	// Requests since seenAt, and those of them that were denied; and how often both come, per nanosecond.
	requests, denials       int64
	requestRate, denialRate float64

	sampled   instant
	remaining int64   // at that time, without what this node has taken since
	others    float64 // units that others use, less what comes back, per nanosecond
	measured  bool    // that is known

	last   int64   // units of the last acquisition
	denied instant // when the store last denied
	quiet  instant // nothing is leased until then
	rolls  instant // when a sliding window does
}

// see counts a charge.
func (d *demand) see(now instant, units int64) {
	d.units += units
	d.requests++
	if elapsed := now - d.seenAt; elapsed >= 100*time.Millisecond {
		span := float64(elapsed)
		d.rate, d.requestRate, d.denialRate = float64(d.units)/span, float64(d.requests)/span, float64(d.denials)/span
		d.units, d.requests, d.denials, d.seenAt = 0, 0, 0, now
	}
}

// pace returns units per nanosecond asked of this node: lately, or just now if that is more.
func (d *demand) pace(now instant) float64 {
	if elapsed := now - d.seenAt; elapsed >= 20*time.Millisecond {
		return max(d.rate, float64(d.units)/float64(elapsed))
	}
	return d.rate
}

// idle returns after how long without a request a lease is returned.
func (d *demand) idle() time.Duration {
	return max(idleAfter, time.Duration(idleGaps/max(d.requestRate, float64(idleGaps)/float64(maxTerm))))
}

// sample measures how fast the others use the counter, by what is left of it.
func (d *demand) sample(c *headgate.Charge, r *headgate.Result, now instant) {
	elapsed := now - d.sampled
	used := float64(d.remaining - r.Remaining)
	switch {
	case d.sampled == 0 || c.Limit.Algorithm == headgate.FixedWindow && used < 0: // a new window
	case elapsed < sampleEvery:
		d.remaining -= r.Granted
		return
	default:
		d.others, d.measured = (used-float64(r.Granted))/float64(elapsed), true
	}
	d.sampled, d.remaining = now, r.Remaining
}

// contention returns how long to let units come back to a counter at its limit, if they do continuously: no longer than it takes
// for as many as a lease may have. A bucket keeps what comes back meanwhile; a sliding window does not for long, so there only
// what is denied anyway may wait.
func (e *entry) contention(c *headgate.Charge, nodes int64, now instant) time.Duration {
	d, l := &e.demand, &e.limit
	perSecond := d.requestRate * float64(time.Second)
	if l.Algorithm == headgate.SlidingWindow {
		perSecond = d.denialRate * float64(time.Second)
	}
	if perSecond < contended || d.denied == 0 || now-d.denied >= maxTrust || l.Algorithm == headgate.FixedWindow || !leasable(c, nodes) {
		return 0
	}
	refill := float64(l.Window) / float64(l.Count) * float64(l.Capacity()/leasedPart+1)
	return time.Duration(min(float64(maxContention), perSecond*float64(contentionPerRequest), refill))
}

// leasable reports whether units of the charge's counter may be leased: by an algorithm that does not mind when they are spent,
// and if a node's part is more than one.
func leasable(c *headgate.Charge, nodes int64) bool {
	switch c.Limit.Algorithm {
	case headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow:
		return !c.Strict && c.Limit.Capacity() >= 2*leasedPart*nodes
	default:
		return false
	}
}

// spend takes the units of a charge from a lease, and returns which; nil if there are not enough.
func (e *entry) spend(c *headgate.Charge, r *headgate.Result, now instant) *lease {
	l := e.lease
	if !l.has(c.Cost, now) {
		if l = e.spare; !l.has(c.Cost, now) {
			return nil
		}
		e.lease, e.spare = e.spare, e.lease
		if e.spare != nil && e.spare.units == 0 {
			e.spare = nil
		}
	}
	l.units -= c.Cost
	*r = headgate.Result{
		Allowed: true, Granted: c.Cost, Remaining: e.last.remaining + e.held(now), ResetAfter: max(0, e.last.reset-now),
		Receipt: l.receipt, Path: headgate.PathLease,
	}
	r.Receipt.Units = c.Cost
	return l
}

// held returns how many units this node holds.
func (e *entry) held(now instant) (units int64) {
	for _, l := range [...]*lease{e.lease, e.spare} {
		if l != nil && now < l.end {
			units += l.units
		}
	}
	return units
}

// surrender ends the leases, and returns the charges that give them back.
func (e *entry) surrender(subject headgate.Subject) (returns []headgate.Charge) {
	for _, l := range [...]*lease{e.lease, e.spare} {
		if l != nil && l.units > 0 {
			returns = append(returns, e.giveBack(subject, l))
		}
	}
	e.lease, e.spare = nil, nil
	return returns
}

// giveBack returns the charge that gives back what is left of a lease.
func (e *entry) giveBack(subject headgate.Subject, l *lease) headgate.Charge {
	units := l.units
	l.units = 0
	return headgate.Charge{Subject: subject, Counter: e.counter, Limit: e.limit, Cost: units, Refund: l.receipt}
}

// acquire has the agent lease units of a counter, if that pays.
func (c *cache) acquire(e *entry, charge *headgate.Charge, now instant) {
	nodes := c.fleet.size()
	if e.acquiring != nil || !leasable(charge, nodes) {
		return
	}
	units, term := e.wants(charge, now, nodes)
	if units < 2 { // one is not worth a call
		return
	}
	e.demand.last = units
	e.acquiring = &acquisition{term: term, since: now, quiet: e.demand.quiet, done: make(chan struct{}), charge: headgate.Charge{
		Subject: charge.Subject, Counter: charge.Counter, Limit: charge.Limit,
		// Several acquisitions go in one call: none of them may deny the others.
		Cost: units, AtLeast: 1, Observe: true,
	}}
	c.agent.acquire(e.acquiring)
}

// wants returns how many units to lease, and for how long: what this node will need at its present pace. The sooner the limit may
// run out, the fewer they are and the sooner they go back.
func (e *entry) wants(c *headgate.Charge, now instant, nodes int64) (units int64, term time.Duration) {
	d := &e.demand
	pace := d.pace(now)
	capacity, left := e.limit.Capacity(), e.last.remaining
	most := capacity / (leasedPart * nodes)
	if wait := e.contention(c, nodes, now); wait > 0 {
		return min(int64(pace*float64(wait)+0.5), capacity/leasedPart, left), 2 * wait
	}
	if now < d.quiet || !d.measured || now < d.rolls && now >= d.rolls-2*rollGuard {
		return 0, 0
	}
	if e.limit.Algorithm == headgate.SlidingWindow && 4*left < capacity {
		return 0, 0 // what is held here keeps a sliding window from its limit, and does not only delay it
	}
	term = maxTerm
	if burn := d.others + pace; burn > 0 {
		ahead := time.Duration(min(float64(left)/burn, float64(time.Hour)))
		term = min(term, ahead/4)
		if ahead < edgeAhead {
			most, term = min(most, capacity/(edgePart*nodes)), min(term, edgeTerm)
		}
		if ahead < edgeTerm/2 {
			return 0, 0
		}
	}
	if 2*left < capacity {
		term = min(term, shortTerm)
	}
	units = min(int64(pace*float64(term)+0.5), growth*max(4, d.last), most, left/(4*nodes))
	return units, min(term, time.Duration(2*float64(units)/max(pace, 1e-12)))
}

// granted begins the lease of an acquisition that the store has answered. What cannot be used is given back.
func (c *cache) granted(a *acquisition, r *headgate.Result, sent instant) {
	charge := &a.charge
	e, mu := c.lock(charge.Subject, charge.Counter)
	defer mu.Unlock()
	if e != nil && e.acquiring == a {
		e.acquiring = nil
	}
	close(a.done)
	if r.Err != nil || r.Granted == 0 {
		return
	}
	c.agent.taken.Add(r.Granted)
	now := c.now()
	l := &lease{units: r.Granted, granted: r.Granted, end: sent + a.term, receipt: r.Receipt, number: c.leases.Add(1)}
	if e != nil && e.limit == charge.Limit {
		e.endWithWindow(l, charge, r, sent)
		e.last.remaining, e.demand.remaining = r.Remaining, e.demand.remaining-r.Granted
		free := &e.spare
		if e.lease == nil || e.lease.units == 0 {
			free = &e.lease
		}
		if now < l.end && (*free == nil || (*free).units == 0) && e.demand.quiet == a.quiet { // not recalled since
			*free = l
			l.idle = e.demand.idle()
			c.agent.expire(expiry{min(l.end, now+l.idle), charge.Subject, charge.Counter, l.number})
			return
		}
	}
	c.agent.returnSoon(headgate.Charge{
		Subject: charge.Subject, Counter: charge.Counter, Limit: charge.Limit, Cost: r.Granted, Refund: r.Receipt,
	})
}

// endWithWindow makes the lease end before the window that it was charged to.
func (e *entry) endWithWindow(l *lease, c *headgate.Charge, r *headgate.Result, sent instant) {
	switch c.Limit.Algorithm {
	case headgate.FixedWindow:
		over := time.UnixMicro(r.Receipt.Mark).Add(c.Limit.Window)
		if terms, _ := c.Terms(r.Time); terms.Aligned {
			over = time.UnixMicro(terms.End)
		}
		l.end = min(l.end, sent+over.Sub(r.Time)-time.Microsecond) // a store tells its time to a microsecond
	case headgate.SlidingWindow:
		e.demand.rolls = sent + time.UnixMicro(r.Receipt.Mark).Add(c.Limit.Window).Sub(r.Time)
		l.end = min(l.end, e.demand.rolls-rollGuard)
	}
}

// expired ends a lease that is over or idle, and has the agent return what is left of it. One that is still being spent from
// expires again later.
func (c *cache) expired(x expiry, now instant) {
	e, mu := c.lock(x.subject, x.counter)
	defer mu.Unlock()
	if e == nil {
		return
	}
	for _, l := range [...]**lease{&e.lease, &e.spare} {
		if *l == nil || (*l).number != x.number {
			continue
		}
		if next := min((*l).end, e.needed+(*l).idle); (*l).units > 0 && now < next {
			x.end = next
			c.agent.expire(x)
			return
		}
		if (*l).units > 0 {
			c.agent.returnSoon(e.giveBack(x.subject, *l))
		}
		*l = nil
	}
}

// returned notes that the store has answered a return of units.
func (c *cache) returned(subject headgate.Subject, counter headgate.Counter) {
	e, mu := c.lock(subject, counter)
	defer mu.Unlock()
	if e != nil {
		e.returned = c.now()
	}
}
