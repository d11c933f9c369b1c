package headgate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
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
	// Took is how long it took, the store included. Of several requests that are decided together only the first has it.
	Took time.Duration

	at time.Time
}

// Time is when it was decided, by the clock of this node.
func (o *Observation) Time() time.Time {
	if o.at.IsZero() {
		o.at = time.Now()
	}
	return o.at
}

// Observed is a Limiter of whose decisions somebody is told. It has all methods of the Limiter, and can stand wherever that can.
type Observed struct {
	*Limiter
	tell         func(context.Context, *Observation)
	start        time.Time
	clock        atomic.Pointer[reading]
	observations sync.Pool
}

// reading is what the clock said at a time since the start. From there it is reckoned on, for a second at the most: to ask for the
// time of day takes as long as a third of a decision.
type reading struct {
	since time.Duration
	said  time.Time
}

// Observed is the limiter with somebody who is told of every decision that is made through it, before the caller is. That must
// not take long, nor keep or change the observation, which is used again.
func (l *Limiter) Observed(tell func(ctx context.Context, o *Observation)) *Observed {
	o := &Observed{Limiter: l, tell: tell, start: time.Now()}
	o.clock.Store(&reading{0, o.start})
	o.observations.New = func() any { return &Observation{} }
	return o
}

// begin is the time since the start.
func (o *Observed) begin() time.Duration { return time.Since(o.start) }

// observe tells of a decision that began at a time since the start.
func (o *Observed) observe(ctx context.Context, call Call, a Attributes, d *Decision, err error, begun time.Duration) {
	now := time.Since(o.start)
	clock := o.clock.Load()
	if now-clock.since >= time.Second {
		clock = &reading{now, time.Now()}
		o.clock.Store(clock)
	}
	o.tellOf(ctx, call, a, d, err, max(1, now-begun), clock.said.Add(now-clock.since))
}

func (o *Observed) tellOf(ctx context.Context, call Call, a Attributes, d *Decision, err error, took time.Duration, at time.Time) {
	seen, _ := o.observations.Get().(*Observation)
	*seen = Observation{call, a, *d, err, took, at}
	o.tell(ctx, seen)
	o.observations.Put(seen)
}

// Check is Limiter.Check.
func (o *Observed) Check(ctx context.Context, req Request) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Check(ctx, req)
	o.observe(ctx, CallCheck, req.Attributes, &d, err, begun)
	return d, err
}

// CheckAll is Limiter.CheckAll, of which every decision is observed.
func (o *Observed) CheckAll(ctx context.Context, asks []Ask) ([]Decision, error) {
	begun := o.begin()
	decisions, err := o.Limiter.CheckAll(ctx, asks)
	if err != nil {
		o.observe(ctx, CallCheck, nil, &Decision{}, err, begun)
		return nil, err
	}
	for i := range asks {
		call := CallCheck
		switch {
		case asks[i].Credit:
			call = CallRefund
		case asks[i].Peek:
			call = CallPeek
		}
		if i == 0 {
			o.observe(ctx, call, asks[i].Attributes, &decisions[i], nil, begun)
		} else {
			o.tellOf(ctx, call, asks[i].Attributes, &decisions[i], nil, 0, time.Time{})
		}
	}
	return decisions, nil
}

// Peek is Limiter.Peek.
func (o *Observed) Peek(ctx context.Context, req Request) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Peek(ctx, req)
	o.observe(ctx, CallPeek, req.Attributes, &d, err, begun)
	return d, err
}

// Reserve is Limiter.Reserve.
func (o *Observed) Reserve(ctx context.Context, req Request, hold time.Duration) (Reservation, error) {
	begun := o.begin()
	r, err := o.Limiter.Reserve(ctx, req, hold)
	o.observe(ctx, CallReserve, req.Attributes, &r.Decision, err, begun)
	return r, err
}

// Commit is Limiter.Commit.
func (o *Observed) Commit(ctx context.Context, token []byte, actual Request) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Commit(ctx, token, actual)
	o.observe(ctx, CallCommit, actual.Attributes, &d, err, begun)
	return d, err
}

// Cancel is Limiter.Cancel.
func (o *Observed) Cancel(ctx context.Context, token []byte) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Cancel(ctx, token)
	o.observe(ctx, CallCancel, nil, &d, err, begun)
	return d, err
}

// Refund is Limiter.Refund.
func (o *Observed) Refund(ctx context.Context, req Request) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Refund(ctx, req)
	o.observe(ctx, CallRefund, req.Attributes, &d, err, begun)
	return d, err
}
