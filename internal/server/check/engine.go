// Package check contains what the transports of the check API share: the engine, the bounds of requests and batches, the slots of
// requests in flight, the authorization of refunds, the logging of failures, and problem responses over HTTP. Messages and documents
// belong to checkgrpc and checkhttp, rules and counters to the engine.
package check

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelog"
)

// Engine makes the decisions. *headgate.Limiter implements it.
type Engine interface {
	Check(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	Peek(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	Reserve(ctx context.Context, req headgate.Request, hold time.Duration) (headgate.Reservation, error)
	Extend(ctx context.Context, token []byte, used, expected headgate.Request, hold time.Duration) (headgate.Reservation, error)
	Commit(ctx context.Context, token []byte, actual headgate.Request) (headgate.Decision, error)
	Cancel(ctx context.Context, token []byte) (headgate.Decision, error)
	Refund(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	Rules() *headgate.RuleSet
	Attributes() []string
}

// LogFailure logs a failure of the engine, as often as the limiter allows.
func LogFailure(ctx context.Context, log *slog.Logger, failures *ratelog.Limiter, err error) {
	failures.Log(ctx, log, slog.LevelError, "", "checks fail: callers get no decision", "error", err)
}
