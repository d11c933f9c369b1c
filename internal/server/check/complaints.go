package check

import (
	"context"
	"log/slog"

	"github.com/headgate/headgate/internal/ratelog"
)

// Complaints tell a log that an engine fails, at most every 10 seconds.
type Complaints struct {
	Log     *slog.Logger
	limiter ratelog.Limiter
}

// Note is about a request without a decision.
func (c *Complaints) Note(ctx context.Context, err error) {
	if _, ok := c.limiter.Allow(""); ok {
		c.Log.ErrorContext(ctx, "checks fail: their callers get no decision", "error", err)
	}
}
