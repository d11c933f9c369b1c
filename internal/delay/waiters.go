// Package delay holds requests for the delay that a leaky bucket imposes, so that they leave at an even rate. It knows
// decisions, but not the protocol of the requests.
package delay

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// Waiters holds requests. Each held request occupies a goroutine and a connection, so their number is limited to Max.
type Waiters struct {
	// Max is the maximum number of requests held at once; others are denied.
	Max int64
	// Early denies a request at once if its deadline would expire during the delay. The caller then learns the reason instead
	// of a timeout.
	Early bool

	now atomic.Int64 // requests held
}

// Hold waits for d.Delay and returns when the request may continue. It turns the decision into a denial if too many requests
// are held already, if Early applies, or if ctx ends first; the error is that of ctx.
func (w *Waiters) Hold(ctx context.Context, d *headgate.Decision) error {
	if deadline, ok := ctx.Deadline(); ok && w.Early && time.Until(deadline) <= d.Delay {
		deny(d, 0)
		return ctx.Err()
	}
	defer w.now.Add(-1)
	if w.now.Add(1) > w.Max {
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

// deny turns a decision with a delay into a denial: the delayed limits deny the request, and RetryAfter is the remaining
// delay.
func deny(d *headgate.Decision, waited time.Duration) {
	d.Allowed, d.RetryAfter, d.Delay = false, max(d.Delay-waited, 0), 0
	d.Limits = slices.Clone(d.Limits) // a Checker may return the same slice again
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Enforced && l.Delay > 0 {
			l.Allowed, l.RetryAfter, l.Delay = false, max(l.Delay-waited, 0), 0
		}
	}
}
