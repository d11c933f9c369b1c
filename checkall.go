package headgate

import (
	"context"
	"errors"
	"fmt"
)

// maxBatchWeight is the largest total weight of the limits of requests that are decided together: that of eight calls to a store,
// a few milliseconds of its time.
const maxBatchWeight = 8 * MaxWeight

// ErrTooManyLimits means that more limits apply to the requests of one CheckAll than a store can decide together.
var ErrTooManyLimits = errors.New("too many limits")

// BatchRequest is one of several requests that are decided together.
type BatchRequest struct {
	Request
	// Peek does not charge this request; if it would be denied, all requests are denied nevertheless.
	Peek bool
	// Limit replaces the limit of rules that permit it (Rule.MaxCallerLimit), unless the subject has an override; nil replaces
	// nothing. Only Count and Window are used.
	Limit *Limit
	// Credit gives back the cost of the request, as Limiter.Refund does.
	Credit bool
}

// CheckAll decides several requests together and returns a decision for each of them: they are charged on all limits of all
// requests, or on none. Credits are given in any case. The error is that of Check or wraps ErrTooManyLimits; in both cases nothing
// is decided or charged.
func (l *Limiter) CheckAll(ctx context.Context, requests []BatchRequest) (decisions []Decision, err error) {
	begun := l.observer.begin()
	defer func() { l.observer.observeAll(ctx, requests, decisions, err, begun) }()
	ev, _ := l.evaluations.Get().(*evaluation)
	defer l.release(ev)
	set := l.rules.Load()
	ends, exempt := make([]int, len(requests)), make([]int, len(requests))
	denied := false
	for i := range requests {
		from := len(ev.charges)
		ev.callerLimit = requests[i].Limit
		if err := ev.prepare(l, set, requests[i].Request); err != nil {
			return nil, err
		}
		ev.subjects = ev.subjects[:0] // the next request has other attributes
		ev.view.reset()
		for j := range ev.charges[from:] {
			c := &ev.charges[from+j]
			switch {
			case requests[i].Credit:
				c.Credit, c.Observe = true, c.Observe || ev.info[from+j].missing != ""
			case requests[i].Peek:
				c.Cost = 0
			}
		}
		denied = denied || ev.denied && !requests[i].Credit
		ends[i], exempt[i] = len(ev.charges), len(ev.exempt)
	}
	ev.set = set // without requests, prepare has not set it
	weight := 0
	for i := range ev.charges {
		if !ev.info[i].repeated { // a client must not be able to exceed the weight, and so evade its limits, by its spelling of a path
			weight += ev.charges[i].Limit.Weight()
		}
	}
	if weight > maxBatchWeight {
		return nil, fmt.Errorf("%w: weight of %d requests is %d, must be at most %d (%s): send fewer together",
			ErrTooManyLimits, len(requests), weight, maxBatchWeight, weights)
	}
	if !denied {
		ev.overdraw()
	} else {
		for i := range ev.charges {
			if c := &ev.charges[i]; !c.Credit {
				c.Cost = 0
			}
		}
	}
	if len(ev.charges) > 0 {
		if err := take(ctx, l.store, ev.charges, ev.results); err != nil {
			ev.fail(ctx, l.store)
		}
	}
	decisions = make([]Decision, len(requests))
	from, free := 0, 0
	for i, end := range ends {
		decisions[i] = ev.decisionOf(from, end, pathOf(ev.results[from:end]), ev.exempt[free:exempt[i]])
		from, free = end, exempt[i]
	}
	return decisions, nil
}
