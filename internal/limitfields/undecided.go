package limitfields

import (
	"context"
	"log/slog"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelog"
)

// Undecided is true if nothing keeps the request out but rules that do so while the store does not answer.
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

// LogUndecided logs, as often as the limiter allows, that a request was decided without the store. err is the error of the
// decision, if it has one.
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
	log.ErrorContext(ctx, "the store did not decide; the rules say what happens while it does not", args...)
}
