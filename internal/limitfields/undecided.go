package limitfields

import (
	"context"
	"log/slog"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelog"
)

// Undecided reports whether the request is denied only by rules that deny while the store is unavailable.
func Undecided(d *headgate.Decision) bool {
	failed := false
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Denies() {
			if l.Err == nil {
				return false
			}
			failed = true
		}
	}
	return failed
}

// LogUndecided logs that a request was decided without the store, as often as failures allows. err is the error of the decision,
// or nil.
func LogUndecided(
	ctx context.Context, log *slog.Logger, failures *ratelog.Limiter, d *headgate.Decision, err error, args ...any,
) {
	suppressed, ok := failures.Allow("")
	if !ok {
		return
	}
	for i := 0; err == nil && i < len(d.Limits); i++ {
		err = d.Limits[i].Err
	}
	args = append([]any{"error", err, "allowed", d.Allowed, "path", string(d.Path), "others_since_last", suppressed}, args...)
	log.ErrorContext(ctx, "store did not decide the request; applying on_store_failure", args...)
}
