package grpclimit

import (
	"context"
	"sync/atomic"
	"time"
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
