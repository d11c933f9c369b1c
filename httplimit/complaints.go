package httplimit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// complaintEvery keeps a store that is away from filling the log.
const complaintEvery = 10 * time.Second

// complaints tell the log of decisions that the store did not make.
type complaints struct {
	log    *slog.Logger
	begin  time.Time
	next   atomic.Int64 // no complaint before this, in nanoseconds since begin
	unsaid atomic.Int64
}

func newComplaints(log *slog.Logger) *complaints { return &complaints{log: log, begin: time.Now()} }

// note is about a request that was decided without the store.
func (c *complaints) note(ctx context.Context, d *headgate.Decision, err error) {
	now, next := time.Since(c.begin), c.next.Load()
	if int64(now) < next || !c.next.CompareAndSwap(next, int64(now+complaintEvery)) {
		c.unsaid.Add(1)
		return
	}
	for i := range d.Limits {
		if err != nil {
			break
		}
		err = d.Limits[i].Err
	}
	c.log.ErrorContext(ctx, "the store did not decide; the rules say what happens while it does not",
		"error", err, "allowed", d.Allowed, "path", string(d.Path), "others_since_last", c.unsaid.Swap(0))
}
