package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/delay"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelog"
)

const defaultMaxWaiters = 1_000

// Checker decides requests. A *headgate.Limiter is one.
type Checker interface {
	// Check's decision is acted on even if there is an error. It charges also if ctx has ended.
	Check(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	// Attributes are the names of those that the rules look at.
	Attributes() []string
}

// Options of the interceptors. The zero value is right for a server whose clients connect to it directly.
type Options struct {
	// Identity says who is calling. Nil believes nobody: a client is then the address it connects from.
	Identity *identity.Resolver
	// Attributes may add to what Identity says, or replace it: the user that an interceptor in front has put into the
	// context, the name in a client's certificate. It is called once for a call or stream, again if other rules look at
	// other attributes.
	Attributes func(ctx context.Context, attributes headgate.Attributes)
	// Cost multiplies what the rules say a call costs, by what is asked: a batch of 500 may cost 500. The message is
	// nil at the start of a client's stream. What costs 0 is not checked. Nil means 1 for all.
	Cost func(fullMethod string, message any) int64
	// PerMessage says of which client's streams each message is checked too. Nil means of none.
	//
	// Such a check has the attributes of the stream and besides descriptor.message, which is "received"; rules that do
	// not ask for it count the start and the messages alike. A message that is denied ends the stream with the
	// denial. If messages should rather come more slowly, limit them by a leaky bucket: the client is held back by
	// flow control.
	PerMessage func(fullMethod string) bool
	// Metadata tells clients where they stand, as package httplimit does in headers: ratelimit-policy and ratelimit in
	// the header of a call that passes; in the trailer of one that is denied, with retry-after.
	Metadata bool
	// MaxWaiters is how many calls and messages may be held at a time for leaky buckets; 0 means 1,000, and less than 0
	// that none is. Those beyond are denied for as long as they would have been held, and so are those whose deadline
	// would pass meanwhile. They were charged nevertheless, which lets nobody pass early.
	MaxWaiters int
	// OnDenied is told of every call and message that is denied, to count or log it: the decision names also rules
	// that clients are not shown.
	OnDenied func(ctx context.Context, fullMethod string, decision *headgate.Decision)
	// Log is told when the store does not decide, at most every 10 seconds; nil means slog.Default().
	Log *slog.Logger
}

// Interceptors check what reaches a server. They are safe for use by many servers.
type Interceptors struct {
	checker  Checker
	options  Options
	waiters  delay.Waiters
	failures ratelog.Limiter
}

// New makes interceptors that ask a checker. Interceptors that authenticate belong in front of them, if what they find
// out is counted by.
func New(checker Checker, options Options) (*Interceptors, error) {
	if checker == nil {
		return nil, errors.New("grpclimit: the checker is nil: make one with headgate.New")
	}
	if options.MaxWaiters == 0 {
		options.MaxWaiters = defaultMaxWaiters
	}
	if options.Log == nil {
		options.Log = slog.Default()
	}
	if options.Identity == nil {
		who, err := identity.New(identity.Options{Log: options.Log})
		if err != nil {
			return nil, fmt.Errorf("grpclimit: %w", err)
		}
		options.Identity = who
	}
	return &Interceptors{checker: checker, options: options, waiters: delay.Waiters{Max: int64(options.MaxWaiters), Early: true}}, nil
}

// Unary is a grpc.UnaryServerInterceptor.
func (i *Interceptors) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	c := call{Interceptors: i, method: info.FullMethod}
	if denial := c.check(ctx, req, true); denial != nil {
		return nil, denial.Err()
	}
	return handler(ctx, req)
}

// Stream is a grpc.StreamServerInterceptor.
func (i *Interceptors) Stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	c := call{Interceptors: i, method: info.FullMethod}
	if info.IsClientStream {
		if denial := c.check(stream.Context(), nil, true); denial != nil {
			return denial.Err()
		}
		if i.options.PerMessage == nil || !i.options.PerMessage(info.FullMethod) {
			return handler(srv, stream)
		}
	}
	checked := &checkedStream{ServerStream: stream, call: c, perMessage: info.IsClientStream}
	err := handler(srv, checked)
	if denial := checked.denial.Load(); denial != nil {
		return denial.Err() // also if the handler took it for the stream's end
	}
	return err
}

// admit decides one request, and holds it if it has to wait. It is nil if the request may go on.
func (i *Interceptors) admit(ctx context.Context, method string, req headgate.Request, header bool) *status.Status {
	d, err := i.checker.Check(ctx, req)
	if err != nil || d.Path == headgate.PathFailed {
		limitfields.LogUndecided(ctx, i.options.Log, &i.failures, &d, err, "method", method)
	}
	if d.Allowed && d.Delay > 0 {
		if err := i.waiters.Hold(ctx, &d); err != nil {
			return status.FromContextError(err)
		}
	}
	if !d.Allowed {
		return i.deny(ctx, method, d)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err) // it was charged, and nobody waits for what the handler would do
	}
	if header && i.options.Metadata {
		setHeader(ctx, &d)
	}
	return nil
}
