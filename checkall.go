package headgate

import (
	"context"
	"errors"
	"fmt"
)

// maxTogether is how much the limits of requests that are decided together may weigh: as much as eight calls to a store carry,
// which is some milliseconds of its time.
const maxTogether = 8 * MaxWeight

// ErrTooManyLimits says that requests which are to be decided together apply to more limits than a store can be asked about at once.
var ErrTooManyLimits = errors.New("too many limits at once")

// BatchRequest is one of several requests that are decided together.
type BatchRequest struct {
	Request
	// Peek charges nothing, and still denies all of them if this one could not pass.
	Peek bool
	// Limit requests for another limit than that of the rules that let callers do so (Rule.MaxCallerLimit), unless the subject
	// has an override; nil requests for none. Count and Window are read, and nothing else.
	Limit *Limit
	// Credit gives back what the request costs, as Limiter.Refund does.
	Credit bool
}

// CheckAll decides several requests as one, each with a decision of its own: they are charged on all limits of all of them, or
// on none. Credits are given in any case. The error is as that of Check, or ErrTooManyLimits; then nothing is decided or charged.
func (l *Limiter) CheckAll(ctx context.Context, requests []BatchRequest) (decisions []Decision, err error) {
	begun := l.observer.begin()
	defer func() { l.observer.observeAll(ctx, requests, decisions, err, begun) }()
	ev, _ := l.evaluations.Get().(*evaluation)
	defer l.putBack(ev)
	set := l.rules.Load()
	ends, exempt := make([]int, len(requests)), make([]int, len(requests))
	denied := false
	for i := range requests {
		from := len(ev.charges)
		ev.asked = requests[i].Limit
		if err := ev.prepare(l, set, requests[i].Request); err != nil {
			return nil, err
		}
		ev.subjects = ev.subjects[:0] // those of these attributes
		ev.view.forget()
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
	ev.set = set // if there is nothing to ask
	weight := 0
	for i := range ev.charges {
		if !ev.info[i].repeated { // a client's spelling of a path must not have its request rejected, and then let pass
			weight += ev.charges[i].Limit.Weight()
		}
	}
	if weight > maxTogether {
		return nil, fmt.Errorf("%w: %d requests weigh %d (%s), at most %d: send fewer together", ErrTooManyLimits, len(requests), weight, weights, maxTogether)
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
		decisions[i] = ev.sumOf(from, end, pathOf(ev.results[from:end]), ev.exempt[free:exempt[i]])
		from, free = end, exempt[i]
	}
	return decisions, nil
}
