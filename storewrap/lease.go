package storewrap

import (
	"time"

	"github.com/headgate/headgate"
)

const (
	// maxTerm is the maximum term of a lease.
	maxTerm = 4 * time.Second
	// shortTerm is the maximum term on a counter that is more than half used.
	shortTerm = 500 * time.Millisecond
	// All nodes together may lease one unit in leaseFraction of a limit; one in nearLimitFraction if the limit may be
	// exhausted within nearLimitHorizon.
	leaseFraction     = 20
	nearLimitFraction = 1_000
	nearLimitHorizon  = 2 * time.Second
	// nearLimitTerm is the maximum term of a lease in that case. If the limit may be exhausted within half of it, nothing is
	// leased.
	nearLimitTerm = 100 * time.Millisecond
	// maxGrowth is how many times larger than the previous lease a lease may be.
	maxGrowth = 4
	// sampleEvery is how often the rate of the other nodes is measured. Nothing is leased before the first measurement,
	// because a burst may exhaust a counter at once.
	sampleEvery = 250 * time.Millisecond
	// quietAfterRecall is how long an exhausted counter is not leased.
	quietAfterRecall = time.Second
	// idleAfter is how long a lease is kept without a request, or idleGaps times the mean interval between requests if that
	// is longer.
	idleAfter = 250 * time.Millisecond
	idleGaps  = 4
	// windowGuard is how long before the end of a sliding window its leases end: units cannot be returned to a window that
	// has ended.
	windowGuard = 50 * time.Millisecond
	// A counter is contended if it is at its limit and this node gets at least contended requests per second for it. The node
	// lets units accumulate there, so that each store call gets several: for contentionPerRequest times the requests per
	// second, capped at maxContention.
	maxContention        = 40 * time.Millisecond
	contentionPerRequest = 5 * time.Microsecond
	contended            = 1_000 // requests per second
	// acquireTurn is how long a request for units of a contended counter, or the acquisition that follows it, keeps other
	// requests from calling the store.
	acquireTurn = 5 * time.Millisecond
)

// lease is units that were charged to the store in advance, to be spent by this node.
type lease struct {
	units   int64 // left
	granted int64
	end     instant
	idle    time.Duration // the lease is returned after this long without a request
	receipt headgate.Receipt
	number  int64
}

// has reports whether the lease is valid and has this many units left.
func (l *lease) has(units int64, now instant) bool {
	return l != nil && l.units >= units && now < l.end
}

// low reports whether at most a quarter of the lease is left: it is time to acquire the next one.
func (l *lease) low() bool { return 4*l.units <= l.granted }

// demand measures how fast units of a counter are used by this node and by the others.
type demand struct {
	countedSince instant // units, requests and denials are counted since then
	units        int64
	rate         float64 // units requested on this node per nanosecond, including denied ones

	// Requests and denials since countedSince, and their rates per nanosecond.
	requests, denials       int64
	requestRate, denialRate float64

	sampled    instant
	remaining  int64   // at sampled, less what this node was granted since
	othersRate float64 // net units that other nodes use per nanosecond
	measured   bool    // othersRate is known

	last         int64   // units of the last acquisition
	denied       instant // when the store last denied a charge
	noLeaseUntil instant // the counter is not leased before
	rollsAt      instant // when the sliding window ends
}

// count counts a charge, and updates the rates every 100 ms.
func (d *demand) count(now instant, units int64) {
	d.units += units
	d.requests++
	if elapsed := now - d.countedSince; elapsed >= 100*time.Millisecond {
		span := float64(elapsed)
		d.rate, d.requestRate, d.denialRate = float64(d.units)/span, float64(d.requests)/span, float64(d.denials)/span
		d.units, d.requests, d.denials, d.countedSince = 0, 0, 0, now
	}
}

// currentRate returns the units per nanosecond requested on this node: of the last interval, or of the current one if that is
// higher.
func (d *demand) currentRate(now instant) float64 {
	if elapsed := now - d.countedSince; elapsed >= 20*time.Millisecond {
		return max(d.rate, float64(d.units)/float64(elapsed))
	}
	return d.rate
}

// idle returns after how long without a request a lease is returned.
func (d *demand) idle() time.Duration {
	return max(idleAfter, time.Duration(idleGaps/max(d.requestRate, float64(idleGaps)/float64(maxTerm))))
}

// sample measures how fast the other nodes use the counter, by its remaining units.
func (d *demand) sample(c *headgate.Charge, r *headgate.Result, now instant) {
	elapsed := now - d.sampled
	used := float64(d.remaining - r.Remaining)
	switch {
	case d.sampled == 0 || c.Limit.Algorithm == headgate.FixedWindow && used < 0: // a new window
	case elapsed < sampleEvery:
		d.remaining -= r.Granted
		return
	default:
		d.othersRate, d.measured = (used-float64(r.Granted))/float64(elapsed), true
	}
	d.sampled, d.remaining = now, r.Remaining
}

// contention returns how long to let units accumulate in a contended counter whose units are refilled continuously; 0 if it
// is not contended. It is at most as long as the units of a lease take to refill. A bucket keeps what is refilled in that
// time. A sliding window does not keep it for long, so only its denied requests count.
func (e *entry) contention(c *headgate.Charge, nodes int64, now instant) time.Duration {
	d, l := &e.demand, &e.limit
	perSecond := d.requestRate * float64(time.Second)
	if l.Algorithm == headgate.SlidingWindow {
		perSecond = d.denialRate * float64(time.Second)
	}
	if perSecond < contended || d.denied == 0 || now-d.denied >= maxTrust || l.Algorithm == headgate.FixedWindow || !leasable(c, nodes) {
		return 0
	}
	refill := float64(l.Window) / float64(l.Count) * float64(l.Capacity()/leaseFraction+1)
	return time.Duration(min(float64(maxContention), perSecond*float64(contentionPerRequest), refill))
}

// leasable reports whether units of the charge's counter may be leased: its algorithm does not depend on when they are spent,
// and each node may lease more than one.
func leasable(c *headgate.Charge, nodes int64) bool {
	switch c.Limit.Algorithm {
	case headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow:
		return !c.Strict && c.Limit.Capacity() >= 2*leaseFraction*nodes
	default:
		return false
	}
}

// spend takes the units of a charge from a lease, and returns the lease; nil if neither has enough.
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

// returnLeases ends the leases, and returns the charges that return their units.
func (e *entry) returnLeases(subject headgate.Subject) (returns []headgate.Charge) {
	for _, l := range [...]*lease{e.lease, e.spare} {
		if l != nil && l.units > 0 {
			returns = append(returns, e.returnCharge(subject, l))
		}
	}
	e.lease, e.spare = nil, nil
	return returns
}

// returnCharge returns the charge that returns the remaining units of a lease, and empties the lease.
func (e *entry) returnCharge(subject headgate.Subject, l *lease) headgate.Charge {
	units := l.units
	l.units = 0
	return headgate.Charge{Subject: subject, Counter: e.counter, Limit: e.limit, Cost: units, Refund: l.receipt}
}

// acquire has the agent lease units of a counter, if that saves calls.
func (c *cache) acquire(e *entry, charge *headgate.Charge, now instant) {
	nodes := c.fleet.sharing(charge)
	if e.acquiring != nil || !leasable(charge, nodes) {
		return
	}
	units, term := e.leaseSize(charge, now, nodes)
	if units < 2 { // a single unit is not worth a call
		return
	}
	e.demand.last = units
	e.acquiring = &acquisition{term: term, since: now, noLeaseUntil: e.demand.noLeaseUntil, done: make(chan struct{}), charge: headgate.Charge{
		Subject: charge.Subject, Counter: charge.Counter, Limit: charge.Limit, Whole: charge.Whole, Absent: charge.Absent,
		// Several acquisitions share a call: none of them may deny the others.
		Cost: units, AtLeast: 1, Observe: true,
	}}
	c.agent.acquire(e.acquiring)
}

// leaseSize returns how many units to lease and for how long, by this node's current rate. The sooner the limit may be
// exhausted, the fewer the units and the shorter the term.
func (e *entry) leaseSize(c *headgate.Charge, now instant, nodes int64) (units int64, term time.Duration) {
	d := &e.demand
	currentRate := d.currentRate(now)
	capacity, left := e.limit.Capacity(), e.last.remaining
	maxUnits := capacity / (leaseFraction * nodes)
	if wait := e.contention(c, nodes, now); wait > 0 {
		return min(int64(currentRate*float64(wait)+0.5), capacity/leaseFraction, left), 2 * wait
	}
	if now < d.noLeaseUntil || !d.measured || now < d.rollsAt && now >= d.rollsAt-2*windowGuard {
		return 0, 0
	}
	if e.limit.Algorithm == headgate.SlidingWindow && 4*left < capacity {
		return 0, 0 // in a sliding window, units held here are lost to the limit and not only delayed
	}
	term = maxTerm
	if burn := d.othersRate + currentRate; burn > 0 {
		ahead := time.Duration(min(float64(left)/burn, float64(time.Hour)))
		term = min(term, ahead/4)
		if ahead < nearLimitHorizon {
			maxUnits, term = min(maxUnits, capacity/(nearLimitFraction*nodes)), min(term, nearLimitTerm)
		}
		if ahead < nearLimitTerm/2 {
			return 0, 0
		}
	}
	if 2*left < capacity {
		term = min(term, shortTerm)
	}
	units = min(int64(currentRate*float64(term)+0.5), maxGrowth*max(4, d.last), maxUnits, left/(4*nodes))
	return units, min(term, time.Duration(2*float64(units)/max(currentRate, 1e-12)))
}

// granted starts the lease of an acquisition that the store has answered. Units that cannot be used are returned.
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
		e.last.update(r, now)
		e.demand.remaining -= r.Granted
		free := &e.spare
		if e.lease == nil || e.lease.units == 0 {
			free = &e.lease
		}
		if now < l.end && (*free == nil || (*free).units == 0) && e.demand.noLeaseUntil == a.noLeaseUntil { // not recalled in the meantime
			*free = l
			l.idle = e.demand.idle()
			c.agent.expire(expiry{min(l.end, now+l.idle), charge.Subject, charge.Counter, l.number})
			return
		}
	}
	c.agent.enqueueReturns(headgate.Charge{
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
		l.end = min(l.end, sent+over.Sub(r.Time)-time.Microsecond) // the store's time has a resolution of a microsecond
	case headgate.SlidingWindow:
		e.demand.rollsAt = sent + time.UnixMicro(r.Receipt.Mark).Add(c.Limit.Window).Sub(r.Time)
		l.end = min(l.end, e.demand.rollsAt-windowGuard)
	}
}

// expired ends a lease that is over or idle, and has the agent return its remaining units. A lease that is still in use is
// scheduled again.
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
		if next := min((*l).end, e.lastUsed+(*l).idle); (*l).units > 0 && now < next {
			x.end = next
			c.agent.expire(x)
			return
		}
		if (*l).units > 0 {
			c.agent.enqueueReturns(e.returnCharge(x.subject, *l))
		}
		*l = nil
	}
}

// returned records that the store has answered a return of units.
func (c *cache) returned(subject headgate.Subject, counter headgate.Counter) {
	e, mu := c.lock(subject, counter)
	defer mu.Unlock()
	if e != nil {
		e.returned = c.now()
	}
}
