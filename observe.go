package headgate

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/wallclock"
)

// Call is what a Limiter was asked for.
type Call string

// The calls that are observed.
const (
	CallCheck   Call = "check"
	CallPeek    Call = "peek"
	CallReserve Call = "reserve"
	CallCommit  Call = "commit"
	CallCancel  Call = "cancel"
	CallRefund  Call = "refund"
)

// Observation is one decision, for metrics, traces and logs.
type Observation struct {
	Call Call
	// Attributes are the request's; nil of Cancel.
	Attributes Attributes
	// Decision is what was said, and Err what the caller was told besides.
	Decision Decision
	Err      error
	// Duration is how long it took, the store included. Of several requests that are decided together only the first has it.
	Duration time.Duration

	at time.Time
}

// Time is when it was decided, by the clock of this node.
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

// WithObserver returns a limiter that shares rules, exceptions and counters with this one and reports every decision that is made
// through it, before the caller gets it. What report does must not take long, nor keep or change the observation, which is reused.
// Explanations are not reported.
func (l *Limiter) WithObserver(report func(ctx context.Context, o *Observation)) *Limiter {
	o := &observer{report: report, clock: wallclock.New()}
	o.observations.New = func() any { return &Observation{} }
	return &Limiter{l.core, o}
}

// begin returns the time, if there is anything to report.
func (o *observer) begin() (now time.Time) {
	if o != nil {
		now = o.clock()
	}
	return now
}

// observe reports a decision that began at a time.
func (o *observer) observe(ctx context.Context, call Call, a Attributes, d *Decision, err error, begun time.Time) {
	if o != nil {
		now := o.clock()
		o.send(ctx, call, a, d, err, max(1, now.Sub(begun)), now)
	}
}

// observeAll reports the decisions on requests that were decided together, or the error if they were not.
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

func (o *observer) send(ctx context.Context, call Call, a Attributes, d *Decision, err error, took time.Duration, at time.Time) {
	seen, _ := o.observations.Get().(*Observation)
	*seen = Observation{call, a, *d, err, took, at}
	o.report(ctx, seen)
	o.observations.Put(seen)
}
