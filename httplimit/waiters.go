package httplimit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

// waiters are requests that are held, so that what leaves a leaky bucket is even. Each takes a goroutine and a
// connection, so there is a most.
type waiters struct {
	most int64
	now  atomic.Int64
}

// hold returns when the request may go on. If there are too many already, or the context ends first, the decision
// becomes a refusal.
//
// The latter is for a deadline that somebody in front of this handler has set: a handler that returns without a word
// has said 200. If the client is gone, nobody reads it.
func (w *waiters) hold(ctx context.Context, d *headgate.Decision) {
	defer w.now.Add(-1)
	if w.now.Add(1) > w.most {
		limitfields.TurnAway(d, 0)
		return
	}
	begin := time.Now()
	timer := time.NewTimer(d.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		limitfields.TurnAway(d, time.Since(begin))
	}
}
