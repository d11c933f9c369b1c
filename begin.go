package headgate

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Outcome is how a request ended.
type Outcome struct {
	// Duration is how long the request took; 0 means the time since Begin, which is also the maximum.
	Duration time.Duration
	// Status is the status of the response as HTTP has it; 0 if there is none.
	Status int
	// Cancelled is whether the client left before the end.
	Cancelled bool
}

// Begin decides a request as Check does, for callers that report its end: it applies concurrency limits as well, which the other
// methods do not. Call Decision.Done when the request has ended.
//
// While the store is unavailable, Rule.OnStoreFailure decides. The units of a node that is killed become available again after the
// limit's lease.
func (l *Limiter) Begin(ctx context.Context, req Request) (Decision, error) {
	return l.evaluate(ctx, CallCheck, req, slotsAcquired, func(ev *evaluation, ctx context.Context, store Store) (Decision, error) {
		if !ev.denied {
			ev.overdraw()
			ev.acquireSlots(l.slots)
		}
		if len(ev.tickets) == 0 {
			return ev.decide(ctx, store), nil
		}
		ev.takeWithSlots(ctx, store)
		return ev.decisionWithSlots(l.slots), nil //nolint:contextcheck // releases do not belong to a request
	})
}

// Done reports the end of a request that Begin has decided, and releases what it had of concurrency limits. It may be called for any
// decision and any number of times; only the first call counts.
func (d *Decision) Done(o Outcome) {
	switch {
	case d.slots != nil:
		d.slots.release(o.Duration)
	case d.onDone != nil:
		d.onDone(o)
	}
}

// Holds reports whether the request has units of concurrency limits, which Done releases.
func (d *Decision) Holds() bool { return d.slots != nil || d.onDone != nil }

// OnDone makes the first call of Done call release, and Holds return true. It is for a Begin that is not the Limiter's, such as that
// of package client, whose units a server has.
func (d *Decision) OnDone(release func(Outcome)) {
	var once sync.Once
	d.onDone = func(o Outcome) { once.Do(func() { release(o) }) }
}

// Close releases the units of concurrency limits of all requests that Begin has decided, for a node that shuts down. It waits until
// the store has recorded it or ctx is done, when it gives up: the units then expire with their leases. Call Begin no more. A limiter without concurrency limits need not be closed.
func (l *Limiter) Close(ctx context.Context) error { return l.slots.close(ctx) }

// slotUse is what an evaluation does with concurrency limits.
type slotUse uint8

const (
	slotsSkipped  slotUse = iota // the caller does not report the end of requests
	slotsPeeked                  // nothing is charged
	slotsAcquired                // the caller calls Done
)

// acquireSlots prepares the charges on concurrency limits.
func (ev *evaluation) acquireSlots(k *slotKeeper) {
	for i := range ev.charges {
		if c := &ev.charges[i]; c.Limit.Algorithm == Concurrency && c.Cost > 0 {
			ev.tickets = append(ev.tickets, k.acquire(c, i, ev.set.rules[ev.info[i].rule].ID))
		}
	}
}

// takeWithSlots charges the store, without the charges whose units were kept on this node.
func (ev *evaluation) takeWithSlots(ctx context.Context, store Store) {
	var err error
	if !slices.ContainsFunc(ev.tickets, func(t slotTicket) bool { return t.requested == 0 }) {
		err = take(ctx, store, ev.charges, ev.results)
	} else {
		err = ev.takeOthers(ctx, store)
	}
	if err != nil {
		ev.fail(ctx, store)
	}
}

// takeOthers charges the store without the charges whose units were kept.
func (ev *evaluation) takeOthers(ctx context.Context, store Store) (err error) {
	var charges []Charge
	for i := range ev.charges {
		if !ev.kept(i) {
			charges = append(charges, ev.charges[i])
		}
	}
	results := make([]Result, len(charges))
	if len(charges) > 0 {
		err = take(ctx, store, charges, results)
	}
	for i := range ev.results {
		if ev.kept(i) {
			ev.results[i] = Result{Allowed: true, Path: PathLease}
		} else {
			ev.results[i], results = results[0], results[1:]
		}
	}
	return err
}

// kept reports whether all units of charge i were kept on this node.
func (ev *evaluation) kept(i int) bool {
	return slices.ContainsFunc(ev.tickets, func(t slotTicket) bool { return t.charge == i && t.requested == 0 })
}

// decisionWithSlots returns the decision, with a handle on the units that the request has of concurrency limits.
func (ev *evaluation) decisionWithSlots(k *slotKeeper) Decision {
	allowed := true
	for i := range ev.charges {
		allowed = allowed && (ev.results[i].Allowed || !ev.charges[i].Enforces())
	}
	var held *heldSlots
	for i := range ev.tickets {
		t := &ev.tickets[i]
		units := k.settle(t, &ev.charges[t.charge], &ev.results[t.charge], allowed)
		if units == 0 {
			continue
		}
		if held == nil {
			held = &heldSlots{keeper: k, since: time.Now()}
			held.units = held.first[:0]
		}
		held.units = append(held.units, slotUnits{t.holder, units})
	}
	d := ev.decision(ev.path())
	d.slots = held
	if d.RetryAfter == Unknown {
		d.RetryAfter = 0
		for _, t := range ev.tickets {
			if !ev.results[t.charge].Allowed {
				d.RetryAfter = max(d.RetryAfter, k.retryAfter(&ev.charges[t.charge]))
			}
		}
	}
	return d
}
