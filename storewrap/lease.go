package storewrap

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

const (
	// term is how long a lease lasts at the most.
	term = 4 * time.Second
	// shortTerm is how long it lasts on a counter of which half is used.
	shortTerm = 500 * time.Millisecond
	// maxPart of a limit is what all nodes together may hold in advance, as one in so many.
	maxPart = 20
	// growth is how much larger than the last one a lease may be.
	growth = 4
	// sweepEvery is how often what is left of leases that have ended is given back.
	sweepEvery = 25 * time.Millisecond
)

// lease is units that were charged to the store in advance, to be spent here.
type lease struct {
	limit     headgate.Limit
	units     int64 // left
	end       instant
	remaining int64 // in the store when they were granted
	reset     instant
	receipt   headgate.Receipt
	number    int64 // tells it from those before it on the same counter
}

// demand is how much of a counter this node needs.
type demand struct {
	since  instant
	units  int64
	seen   int64 // requests, refused ones included, since seenAt
	seenAt instant
	rate   float64       // of them, per nanosecond
	burn   float64       // units per nanosecond that all nodes take, more than come back
	asking bool          // somebody is, for units in advance
	last   int64         // how many they were
	span   time.Duration // that they may be spent in
	rolls  instant       // when the counter's window does
}

// leasable is true of charges whose units may be taken in advance. A leaky bucket gives each request a time of its own, and a
// log keeps one for each.
func leasable(c *headgate.Charge) bool {
	switch c.Limit.Algorithm {
	case headgate.TokenBucket, headgate.FixedWindow, headgate.SlidingWindow:
		return !c.Strict
	default:
		return false
	}
}

// mostAhead is how many units a node may hold in advance; one is not worth it.
func mostAhead(c *headgate.Charge, nodes int64) int64 { return c.Limit.Capacity() / (maxPart * nodes) }

// spend takes the units of a charge from the lease, if that has them.
func (e *entry) spend(c *headgate.Charge, r *headgate.Result, now instant) bool {
	l := e.lease
	if l == nil || l.units < c.Cost || now >= l.end {
		return false
	}
	l.units -= c.Cost
	e.demand.units += c.Cost
	*r = headgate.Result{
		Allowed: true, Granted: c.Cost, Remaining: l.remaining + l.units, ResetAfter: max(0, l.reset-now),
		Receipt: l.receipt, Path: headgate.PathLease,
	}
	r.Receipt.Units = c.Cost
	return true
}

// wants is how many units to take in advance with the next charge: what this node will need for the term of a lease, as fast as
// it has needed them lately. The less is left for all nodes, the fewer they are and the sooner they go back.
func (e *entry) wants(c *headgate.Charge, now instant, nodes int64) int64 {
	d := &e.demand
	most := mostAhead(c, nodes)
	if d.asking || most < 2 || now < d.rolls && now >= d.rolls-4*sweepEvery {
		return 0
	}
	span := term
	switch {
	case now-e.denial.until <= shortTerm && c.Limit.Algorithm != headgate.FixedWindow:
		// It is at its limit, and whoever has units keeps them from others.
		span = 4 * minDenial
		if c.Limit.Algorithm == headgate.SlidingWindow {
			most /= 10
		}
	default:
		left := e.remaining
		if d.burn > 0 { // others have taken some since
			left -= int64(d.burn * float64(now-e.heard))
			span = min(span, time.Duration(float64(left)/d.burn/4))
		}
		most = min(most, left/(4*nodes))
		if 2*left < c.Limit.Capacity() {
			span = min(span, shortTerm)
		}
	}
	rate := float64(d.units) / float64(max(now-d.since, time.Microsecond))
	want := min(int64(rate*float64(span)+0.5), growth*max(1, d.last), most)
	if want < 1 {
		return 0
	}
	d.asking, d.last, d.span = true, want, min(span, time.Duration(2*float64(want)/rate))
	return want
}

// see counts a request.
func (d *demand) see(now instant) {
	d.seen++
	if elapsed := now - d.seenAt; elapsed > 100*time.Millisecond {
		d.rate = float64(d.seen) / float64(elapsed)
		d.seen, d.seenAt = 0, now
	}
}

// worthwhile is how long to wait for units of which many are wanted.
func (d *demand) worthwhile() time.Duration {
	return min(minDenial, time.Duration(d.rate*float64(many)*float64(minDenial)))
}

// needs notes that a charge was made of the store.
func (d *demand) needs(units int64, now instant) {
	if now-d.since > 2*term {
		d.since, d.units = now, 0
	}
	d.units += units
}

// grant begins a lease with what was granted beyond a charge. sent is when it was asked for.
func (k *known) grant(e *entry, c *headgate.Charge, r *headgate.Result, sent instant) {
	k.leases.abandon(e)
	l := e.lease
	if l == nil {
		l = &lease{}
		e.lease = l
	}
	end := sent + e.demand.span
	switch c.Limit.Algorithm {
	case headgate.FixedWindow:
		over := time.UnixMicro(r.Receipt.Mark).Add(c.Limit.Window)
		if terms, _ := c.Terms(r.Time); terms.Aligned {
			over = time.UnixMicro(terms.End)
		}
		end = min(end, sent+over.Sub(r.Time)-time.Microsecond) // which is how exactly a store tells its time
	case headgate.SlidingWindow:
		start := time.UnixMicro(r.Receipt.Mark)
		e.demand.rolls = sent + start.Add(c.Limit.Window).Sub(r.Time)
		end = min(end, e.demand.rolls-2*sweepEvery)
	}
	*l = lease{
		limit: c.Limit, units: r.Granted - c.Cost, end: end, remaining: r.Remaining, reset: sent + r.ResetAfter,
		receipt: r.Receipt, number: l.number + 1,
	}
	e.demand.since, e.demand.units = sent, c.Cost
	r.Granted, r.Receipt.Units = c.Cost, c.Cost
	r.Remaining += l.units
	k.leases.granted(c, l, end)
}

// leases are those under way, in the order in which they end, and what is left of those that have ended otherwise.
type leases struct {
	mu       sync.Mutex
	queue    []outstanding
	left     []headgate.Charge
	sweeping bool

	taken, returned, lost atomic.Int64 // units
}

type outstanding struct {
	counter
	number int64
	end    instant
}

func (ls *leases) granted(c *headgate.Charge, l *lease, end instant) {
	ls.taken.Add(l.units)
	ls.mu.Lock()
	ls.queue = append(ls.queue, outstanding{counter{c.Subject, c.Counter}, l.number, end})
	ls.mu.Unlock()
}

// abandon ends the lease of an entry. What is left of it is to be given back.
func (ls *leases) abandon(e *entry) {
	if l := e.lease; l != nil && l.units > 0 {
		ls.giveBack(l.back(e))
		l.units = 0
	}
}

func (ls *leases) giveBack(c headgate.Charge) {
	ls.mu.Lock()
	ls.left = append(ls.left, c)
	ls.mu.Unlock()
}

// back is the charge that gives back what is left of the lease.
func (l *lease) back(e *entry) headgate.Charge {
	return headgate.Charge{Subject: e.subject, Counter: e.counter, Limit: l.limit, Cost: l.units, Refund: l.receipt}
}

// sweepSoon has what is left of leases given back after they have ended, as long as there are any.
func (s *Store) sweepSoon() {
	ls := &s.known.leases
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.sweeping || len(ls.queue) == 0 && len(ls.left) == 0 {
		return
	}
	ls.sweeping = true
	s.background.run(func(ctx context.Context) {
		for ended := false; !ended; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(sweepEvery):
			}
			s.giveBackAll(ctx, s.known.ended(time.Since(s.start)))
			ls.mu.Lock()
			ended = len(ls.queue) == 0 && len(ls.left) == 0
			ls.sweeping = !ended
			ls.mu.Unlock()
		}
	})
}

// ended is what is left of leases that have ended by now.
func (k *known) ended(now instant) []headgate.Charge {
	k.leases.mu.Lock()
	left := k.leases.left
	k.leases.left = nil
	var over []outstanding
	kept := k.leases.queue[:0]
	for _, o := range k.leases.queue {
		if o.end <= now {
			over = append(over, o)
		} else {
			kept = append(kept, o)
		}
	}
	k.leases.queue = kept
	k.leases.mu.Unlock()
	for _, o := range over {
		c := headgate.Charge{Subject: o.subject, Counter: o.counter.counter}
		set, mu := k.lock(&c)
		if e := set.find(&c); e != nil && e.lease != nil && e.lease.number == o.number && e.lease.units > 0 {
			left = append(left, e.lease.back(e))
			e.lease.units = 0
		}
		mu.Unlock()
	}
	return left
}

// giveBackAll gives back what is left of leases. What cannot be given back is lost, which is on the safe side. It does not end with
// ctx, half way.
func (s *Store) giveBackAll(ctx context.Context, left []headgate.Charge) {
	ls := &s.known.leases
	left = slices.DeleteFunc(left, func(c headgate.Charge) bool {
		gone := s.partOf(c.Subject).away.Load()
		if gone {
			ls.lost.Add(c.Cost)
		}
		return gone
	})
	for len(left) > 0 {
		n := min(batch, len(left))
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		results := make([]headgate.Result, n)
		err := s.inner.Take(asking, left[:n], results)
		cancel()
		if err != nil {
			n = len(left) // the rest is not tried
		}
		for i, c := range left[:n] {
			if i < len(results) && results[i].Err == nil {
				ls.returned.Add(c.Cost)
			} else {
				ls.lost.Add(c.Cost)
			}
		}
		left = left[n:]
	}
}
