// Package delay holds requests for as long as a leaky bucket says, so that what leaves it is even. It knows decisions, and nothing
// of the protocol that requests come in.
package delay

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// Waiters are requests that are held. Each takes a goroutine and a connection, so their number is capped.
type Waiters struct {
	Most int64
	// Early denies a request at once if its deadline would pass meanwhile: the caller then learns why, instead of taking the
	// server for slow.
	Early bool

	now atomic.Int64
}

// Hold returns when the request may go on. If there are too many already, or the context ends first, the decision becomes a
// denial; the error is the context's.
func (w *Waiters) Hold(ctx context.Context, d *headgate.Decision) error {
	if deadline, ok := ctx.Deadline(); ok && w.Early && time.Until(deadline) <= d.Delay {
		deny(d, 0)
		return ctx.Err()
	}
	defer w.now.Add(-1)
	if w.now.Add(1) > w.Most {
		deny(d, 0)
		return nil
	}
	begin := time.Now()
	select {
	case <-time.After(d.Delay):
		return nil
	case <-ctx.Done():
		deny(d, time.Since(begin))
		return ctx.Err()
	}
}

// deny makes a denial of a decision to wait: the limits that hold the request deny it for what is left of that.
func deny(d *headgate.Decision, waited time.Duration) {
	d.Allowed, d.RetryAfter, d.Delay = false, max(d.Delay-waited, 0), 0
	d.Limits = slices.Clone(d.Limits) // a Checker may hand out the same ones again
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Enforced && l.Delay > 0 {
			l.Allowed, l.RetryAfter, l.Delay = false, max(l.Delay-waited, 0), 0
		}
	}
}
