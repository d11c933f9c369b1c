// Package check is what the transports of the check API share: the engine they ask, the bounds of requests and batches, who may
// refund, how failures are logged, and how problems are answered over HTTP. It knows neither messages nor documents, which are for
// checkgrpc and checkhttp, nor where rules and counters are.
package check

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelog"
)

// Engine decides. A *headgate.Limiter is one.
type Engine interface {
	Check(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	Peek(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	Reserve(ctx context.Context, req headgate.Request, hold time.Duration) (headgate.Reservation, error)
	Commit(ctx context.Context, token []byte, actual headgate.Request) (headgate.Decision, error)
	Cancel(ctx context.Context, token []byte) (headgate.Decision, error)
	Refund(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	Rules() *headgate.RuleSet
	Attributes() []string
}

// LogFailure logs, as often as the limiter allows, that an engine fails.
func LogFailure(ctx context.Context, log *slog.Logger, failures *ratelog.Limiter, err error) {
	failures.Log(ctx, log, slog.LevelError, "", "checks fail: their callers get no decision", "error", err)
}
