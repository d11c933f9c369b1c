// Package storm generates retry storms: many times the load that limits allow, from callers that retry a denial at once and from
// callers that wait for RetryAfter. It measures what is allowed and what it costs. It knows nothing of how a check is made.
package storm

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Decision is the part of a decision that a caller sees.
type Decision struct {
	Allowed bool
	Wait    time.Duration // of a denial
	Redis   bool          // whether Redis decided
}

// Check checks one unit for a subject on a node.
type Check func(ctx context.Context, node, subject int) (Decision, error)

// Limit is the limit of each subject: a token bucket that starts full.
type Limit struct {
	Count  int64
	Window time.Duration
}

// in returns the units that the limit allows in a run.
func (l Limit) in(elapsed time.Duration) float64 {
	return float64(l.Count) * (1 + elapsed.Seconds()/l.Window.Seconds())
}

// Plan describes the load: the callers, their rate and the duration.
type Plan struct {
	Limit    Limit
	Subjects int
	// AtOnce and Patient are the numbers of callers per subject. A caller sends its next check as soon as it was allowed. When
	// denied, AtOnce callers retry at once and Patient callers after RetryAfter.
	AtOnce, Patient int
	// Offered is the load of all AtOnce callers together, as a multiple of the limit; 0 means as much as they can.
	Offered float64
	Lasts   time.Duration
	// First is the number of the first subject. Plans must not share subjects.
	First int
}

// Outcome is the result of a plan.
type Outcome struct {
	Plan
	Elapsed         time.Duration
	Allowed, Denied int64
	// ByRedis is the number of denials that Redis decided, not the node.
	ByRedis int64
	// Worst is the largest ratio, over subjects, of units allowed to units that the limit allows.
	Worst float64
	// CPU is the time that servers used.
	CPU time.Duration
}

// Goodput returns the ratio of units allowed to units that the limits allow.
func (o *Outcome) Goodput() float64 {
	return float64(o.Allowed) / (float64(o.Subjects) * o.Limit.in(o.Elapsed))
}

// Multiple returns the offered load as a multiple of the limits.
func (o *Outcome) Multiple() float64 {
	return float64(o.Allowed+o.Denied) / (float64(o.Subjects) * o.Limit.in(o.Elapsed))
}

// DenialCost returns the CPU time of a denial, given the CPU time of an allowed check, measured without a storm.
func (o *Outcome) DenialCost(allowed time.Duration) time.Duration {
	if o.Denied == 0 {
		return 0
	}
	return (o.CPU - time.Duration(o.Allowed)*allowed) / time.Duration(o.Denied)
}

// Run runs the callers of a plan. cpu returns the CPU time that servers have used so far.
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
					last = time.Since(start) >= p.Lasts // one last check, for the units refilled since
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

// turn returns when a caller sends its nth check, so that all callers together offer the planned load.
func (p *Plan) turn(subject, caller, n int) time.Duration {
	every := p.Lasts.Seconds() / p.Limit.in(p.Lasts) * float64(p.AtOnce) / p.Offered
	_, phase := math.Modf(float64(subject*p.AtOnce+caller) * math.Phi)
	return time.Duration((float64(n) + phase) * every * float64(time.Second))
}

// AllowedCost returns the CPU time of an allowed check when the same callers send as many checks, each for a new subject. Patient
// callers, which are never denied then, send as AtOnce callers do. It also returns the number after the last subject.
func AllowedCost(ctx context.Context, p Plan, check Check, cpu func() time.Duration) (cost time.Duration, next int, err error) {
	p.AtOnce, p.Patient = p.AtOnce+p.Patient, 0
	var subjects atomic.Int64
	o, err := Run(ctx, p, func(ctx context.Context, node, _ int) (Decision, error) {
		return check(ctx, node, p.First+int(subjects.Add(1)))
	}, cpu)
	return o.CPU / time.Duration(max(1, o.Allowed)), p.First + int(subjects.Load()) + 1, err
}
