package checkapi

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// quietFor keeps an engine that fails from filling the log.
const quietFor = 10 * time.Second

// Complaints tell a log that an engine fails, at most every 10 seconds.
type Complaints struct {
	Log   *slog.Logger
	quiet atomic.Int64 // until this, in Unix nanoseconds
}

// Note is about a request without a decision.
func (c *Complaints) Note(ctx context.Context, err error) {
	now, until := time.Now().UnixNano(), c.quiet.Load()
	if now >= until && c.quiet.CompareAndSwap(until, now+int64(quietFor)) {
		c.Log.ErrorContext(ctx, "checks fail: their callers get no decision", "error", err)
	}
}
