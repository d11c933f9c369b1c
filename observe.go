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
}

// Observed is a Limiter of whose decisions somebody is told. It has all methods of the Limiter, and can stand wherever that can.
type Observed struct {
	*Limiter
	tell         func(context.Context, *Observation)
	start        time.Time
	inFlight     atomic.Int64
	observations sync.Pool
}

// Observed is the limiter with somebody who is told of every decision that is made through it, before the caller is. That must
// not take long, nor keep or change the observation, which is used again.
func (l *Limiter) Observed(tell func(ctx context.Context, o *Observation)) *Observed {
	o := &Observed{Limiter: l, tell: tell, start: time.Now()}
	o.observations.New = func() any { return &Observation{} }
	return o
}

// InFlight is how many decisions are being made now.
func (o *Observed) InFlight() int64 { return o.inFlight.Load() }

// begin is the time since the start, which takes half as long to ask for as the time of day.
func (o *Observed) begin() time.Duration {
	o.inFlight.Add(1)
	return time.Since(o.start)
}

func (o *Observed) end(begun time.Duration) time.Duration {
	o.inFlight.Add(-1)
	return max(1, time.Since(o.start)-begun)
}

func (o *Observed) observe(ctx context.Context, call Call, a Attributes, d *Decision, err error, took time.Duration) {
	seen, _ := o.observations.Get().(*Observation)
	*seen = Observation{call, a, *d, err, took}
	o.tell(ctx, seen)
	*seen = Observation{}
	o.observations.Put(seen)
}

// Check is Limiter.Check.
func (o *Observed) Check(ctx context.Context, req Request) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Check(ctx, req)
	o.observe(ctx, CallCheck, req.Attributes, &d, err, o.end(begun))
	return d, err
}

// CheckAll is Limiter.CheckAll, of which every decision is observed.
func (o *Observed) CheckAll(ctx context.Context, asks []Ask) ([]Decision, error) {
	begun := o.begin()
	decisions, err := o.Limiter.CheckAll(ctx, asks)
	took := o.end(begun)
	if err != nil {
		o.observe(ctx, CallCheck, nil, &Decision{}, err, took)
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
		o.observe(ctx, call, asks[i].Attributes, &decisions[i], nil, took)
		took = 0
	}
	return decisions, nil
}

// Peek is Limiter.Peek.
func (o *Observed) Peek(ctx context.Context, req Request) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Peek(ctx, req)
	o.observe(ctx, CallPeek, req.Attributes, &d, err, o.end(begun))
	return d, err
}

// Reserve is Limiter.Reserve.
func (o *Observed) Reserve(ctx context.Context, req Request, hold time.Duration) (Reservation, error) {
	begun := o.begin()
	r, err := o.Limiter.Reserve(ctx, req, hold)
	o.observe(ctx, CallReserve, req.Attributes, &r.Decision, err, o.end(begun))
	return r, err
}

// Commit is Limiter.Commit.
func (o *Observed) Commit(ctx context.Context, token []byte, actual Request) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Commit(ctx, token, actual)
	o.observe(ctx, CallCommit, actual.Attributes, &d, err, o.end(begun))
	return d, err
}

// Cancel is Limiter.Cancel.
func (o *Observed) Cancel(ctx context.Context, token []byte) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Cancel(ctx, token)
	o.observe(ctx, CallCancel, nil, &d, err, o.end(begun))
	return d, err
}

// Refund is Limiter.Refund.
func (o *Observed) Refund(ctx context.Context, req Request) (Decision, error) {
	begun := o.begin()
	d, err := o.Limiter.Refund(ctx, req)
	o.observe(ctx, CallRefund, req.Attributes, &d, err, o.end(begun))
	return d, err
}
