package headgate

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/wallclock"
)

// Call is the method of a Limiter that made a decision.
type Call string

// The values of Call.
const (
	CallCheck   Call = "check"
	CallPeek    Call = "peek"
	CallReserve Call = "reserve"
	CallCommit  Call = "commit"
	CallCancel  Call = "cancel"
	CallRefund  Call = "refund"
)

// Observation is one decision, reported for metrics, traces and logs.
type Observation struct {
	Call Call
	// Attributes are the request's attributes; nil for Cancel.
	Attributes Attributes
	// Decision and Err are what the call returns.
	Decision Decision
	Err      error
	// Duration is how long the decision took, including the store. Of requests decided together by CheckAll, only the first has a
	// duration.
	Duration time.Duration

	at time.Time
}

// Time returns when the decision was made, by this node's clock.
func (o *Observation) Time() time.Time {
	if o.at.IsZero() {
		o.at = time.Now()
	}
	return o.at
}

// observer reports the decisions of a limiter. A nil observer reports nothing.
type observer struct {
	report       func(context.Context, *Observation)
	clock        func() time.Time
	observations sync.Pool
}

// WithObserver returns a limiter that shares rules, exceptions and counters with l and calls report with every decision that is made
// through it, before the method returns. report must be fast and must not retain or change the observation, which is reused.
// Explain is not reported.
func (l *Limiter) WithObserver(report func(ctx context.Context, o *Observation)) *Limiter {
	o := &observer{report: report, clock: wallclock.New()}
	o.observations.New = func() any { return &Observation{} }
	return &Limiter{l.core, o}
}

// begin returns the start time of a decision, or the zero time if o is nil.
func (o *observer) begin() (now time.Time) {
	if o != nil {
		now = o.clock()
	}
	return now
}

// observe reports a decision that was begun at the given time.
func (o *observer) observe(ctx context.Context, call Call, a Attributes, d *Decision, err error, begun time.Time) {
	if o != nil {
		now := o.clock()
		o.send(ctx, call, a, d, err, max(1, now.Sub(begun)), now)
	}
}

// observeAll reports the decisions on requests that were decided together, or the error if they were not decided.
func (o *observer) observeAll(ctx context.Context, requests []BatchRequest, decisions []Decision, err error, begun time.Time) {
	switch {
	case o == nil:
		return
	case err != nil:
		o.observe(ctx, CallCheck, nil, &Decision{}, err, begun)
		return
	}
	for i := range requests {
		call := CallCheck
		switch {
		case requests[i].Credit:
			call = CallRefund
		case requests[i].Peek:
			call = CallPeek
		}
		if i == 0 {
			o.observe(ctx, call, requests[i].Attributes, &decisions[i], nil, begun)
		} else {
			o.send(ctx, call, requests[i].Attributes, &decisions[i], nil, 0, time.Time{})
		}
	}
}

// send calls report with a pooled observation.
func (o *observer) send(ctx context.Context, call Call, a Attributes, d *Decision, err error, duration time.Duration, at time.Time) {
	observation, _ := o.observations.Get().(*Observation)
	*observation = Observation{call, a, *d, err, duration, at}
	o.report(ctx, observation)
	o.observations.Put(observation)
}
