package grpclimit

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// waiters are calls that are held for leaky buckets. Each takes a goroutine and a stream, so there is a most.
type waiters struct {
	most int64
	now  atomic.Int64
}

// hold is true when the call may go on. It is false, at once, if there are too many, or if the deadline would pass
// meanwhile: the caller then learns why, instead of taking the server for slow. The error is the context's, if it ends
// first.
func (w *waiters) hold(ctx context.Context, d time.Duration) (bool, error) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false, ctx.Err()
	}
	defer w.now.Add(-1)
	if w.now.Add(1) > w.most {
		return false, nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// turnedAway is a decision to wait as the refusal it becomes for a call that cannot: the limits that would hold it
// refuse it for as long.
func turnedAway(d headgate.Decision) headgate.Decision {
	d.Allowed, d.RetryAfter, d.Delay = false, d.Delay, 0
	d.Limits = slices.Clone(d.Limits) // a Checker may keep them
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Enforced && l.Delay > 0 {
			l.Allowed, l.RetryAfter, l.Delay = false, l.Delay, 0
		}
	}
	return d
}
