// Package storm offers many times what limits allow, by callers that retry at once when they are denied and by callers that wait as
// long as they were told, and counts what is allowed and what it costs. It knows nothing of how a check is made.
package storm

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Answer is what a caller sees of a decision.
type Answer struct {
	Allowed bool
	Wait    time.Duration // if it is not
	Redis   bool          // decided
}

// Check asks a node, of several in turn, whether a subject may do something once.
type Check func(ctx context.Context, node, subject int) (Answer, error)

// Limit is that of each subject: a token bucket that is full at first.
type Limit struct {
	Count  int64
	Window time.Duration
}

// in returns what the limit allows in a run.
func (l Limit) in(elapsed time.Duration) float64 {
	return float64(l.Count) * (1 + elapsed.Seconds()/l.Window.Seconds())
}

// Plan is who asks for what, and for how long.
type Plan struct {
	Limit    Limit
	Subjects int
	// AtOnce and Patient are how many callers of each kind a subject has. Each asks again as soon as it was allowed; when it was
	// denied, those ask at once and these after the wait that they were told.
	AtOnce, Patient int
	// Offered is how many times as much as the limit allows those that retry at once ask for, together; 0 means as much as they can.
	Offered float64
	Lasts   time.Duration
	// First is the number of the first subject: that of another plan is another one.
	First int
}

// Outcome is what came of a plan.
type Outcome struct {
	Plan
	Elapsed         time.Duration
	Allowed, Denied int64
	// ByRedis is how many of the denials were not the node's own.
	ByRedis int64
	// Worst is the most that a subject was allowed, of what its limit allows.
	Worst float64
	// CPU that servers have used.
	CPU time.Duration
}

// Goodput is what was allowed of what the limits allow.
func (o *Outcome) Goodput() float64 {
	return float64(o.Allowed) / (float64(o.Subjects) * o.Limit.in(o.Elapsed))
}

// Multiple is how many times as much was asked for as the limits allow.
func (o *Outcome) Multiple() float64 {
	return float64(o.Allowed+o.Denied) / (float64(o.Subjects) * o.Limit.in(o.Elapsed))
}

// DenialCost is the CPU time of a denial, where an allowed check has a cost that was measured without a storm.
func (o *Outcome) DenialCost(allowed time.Duration) time.Duration {
	if o.Denied == 0 {
		return 0
	}
	return (o.CPU - time.Duration(o.Allowed)*allowed) / time.Duration(o.Denied)
}

// Run lets the callers loose. cpu returns what servers have used so far.
func Run(ctx context.Context, p Plan, check Check, cpu func() time.Duration) (Outcome, error) {
	allowed, denied, byRedis := make([]atomic.Int64, p.Subjects), atomic.Int64{}, atomic.Int64{}
	callers, running := errgroup.WithContext(ctx)
	used, start := cpu(), time.Now()
	for i := range p.Subjects {
		for caller := range p.AtOnce + p.Patient {
			callers.Go(func() error {
				patient := caller >= p.AtOnce
				for n, last := 0, false; !last && running.Err() == nil; n++ {
					if !patient && p.Offered > 0 {
						time.Sleep(min(p.turn(i, caller, n), p.Lasts) - time.Since(start))
					}
					last = time.Since(start) >= p.Lasts // it still asks, for what has come back since
					a, err := check(running, caller+n, p.First+i)
					if err != nil {
						return err
					}
					if a.Allowed {
						allowed[i].Add(1)
						continue
					}
					denied.Add(1)
					if a.Redis {
						byRedis.Add(1)
					}
					if patient {
						time.Sleep(min(a.Wait, p.Lasts-time.Since(start)))
					}
				}
				return context.Cause(ctx)
			})
		}
	}
	err := callers.Wait()
	o := Outcome{Plan: p, Elapsed: time.Since(start), CPU: cpu() - used, Denied: denied.Load(), ByRedis: byRedis.Load()}
	for i := range allowed {
		n := allowed[i].Load()
		o.Allowed += n
		o.Worst = max(o.Worst, float64(n)/o.Limit.in(o.Elapsed))
	}
	return o, err
}

// turn returns when a caller asks for the nth time, if callers together offer a certain load.
func (p *Plan) turn(subject, caller, n int) time.Duration {
	every := p.Lasts.Seconds() / p.Limit.in(p.Lasts) * float64(p.AtOnce) / p.Offered
	_, phase := math.Modf(float64(subject*p.AtOnce+caller) * math.Phi)
	return time.Duration((float64(n) + phase) * every * float64(time.Second))
}

// AllowedCost is the CPU time of an allowed check if the same callers ask as often, each time for a subject that has not asked before.
// Patient callers, who are never denied then, ask as those do that retry at once. It returns also the number after the last subject.
func AllowedCost(ctx context.Context, p Plan, check Check, cpu func() time.Duration) (cost time.Duration, next int, err error) {
	p.AtOnce, p.Patient = p.AtOnce+p.Patient, 0
	var subjects atomic.Int64
	o, err := Run(ctx, p, func(ctx context.Context, node, _ int) (Answer, error) {
		return check(ctx, node, p.First+int(subjects.Add(1)))
	}, cpu)
	return o.CPU / time.Duration(max(1, o.Allowed)), p.First + int(subjects.Load()) + 1, err
}
