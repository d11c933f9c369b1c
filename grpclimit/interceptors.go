package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/delay"
	"github.com/headgate/headgate/internal/ratelog"
	"github.com/headgate/headgate/streamlimit"
)

const defaultMaxWaiters = 1_000

// Checker decides requests. *headgate.Limiter implements it.
//
// If a Checker also has the method Begin of *headgate.Limiter, the interceptors call Begin instead of Check, except for messages of a
// stream, and Decision.Done when the handler has returned: concurrency limits then apply. A type that embeds a *headgate.Limiter has
// both methods and must override both.
type Checker interface {
	// Check decides a request and charges it. The interceptors apply the decision even if the error is not nil. Check must
	// charge even if ctx is done.
	Check(ctx context.Context, req headgate.Request) (headgate.Decision, error)
	// Attributes returns the names of the attributes that the rules use.
	Attributes() []string
}

// beginner is a Checker that applies concurrency limits.
type beginner interface {
	Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error)
}

// Options configures the interceptors. The zero value suits a server that clients connect to directly.
type Options struct {
	// Identity resolves calls to attributes. The default is a Resolver that trusts no proxy and identifies clients by their
	// address. Set it if the server is behind a proxy or if clients have API keys.
	Identity *identity.Resolver
	// Attributes adds to or replaces the attributes that Identity resolved, for example with the user that an earlier
	// interceptor put into the context, or the name in the client's certificate. It is called once per call or stream, and
	// again if the rules change and use other attributes. The default changes nothing.
	Attributes func(ctx context.Context, attributes headgate.Attributes)
	// Cost returns a factor for the cost of a call: a batch of 500 may cost 500. message is nil at the start of a client
	// stream. A call of cost 0 is not checked. The default is 1 for all calls.
	Cost func(fullMethod string, message any) int64
	// PerMessage reports whether each message of a client stream is checked, in addition to its start. The default is false for
	// all streams.
	//
	// The check of a message has the attributes of the stream and the attribute descriptor.message = "received". Rules that do
	// not match on it count the start of a stream and its messages alike. A denied message ends the stream with the denial. To
	// slow messages down instead, use a leaky bucket: flow control then slows the client.
	PerMessage func(fullMethod string) bool
	// Metadata reports limits to clients, as package httplimit does in headers: ratelimit-policy and ratelimit in the header of
	// an allowed call, and in the trailer of a denied call together with retry-after. The default is false.
	Metadata bool
	// MaxWaiters caps the number of calls and messages that are delayed for leaky buckets at the same time. The default (0) is
	// 1,000; a negative value means that none is delayed. A call over this cap is denied, and its wait is the delay that it would
	// have had. So is a call whose deadline would expire during the delay. Both are charged nevertheless: they keep their slot in
	// the queue, so no other call is allowed earlier.
	MaxWaiters int
	// OnDenied is called for every denied call and message, for example to count or log it. The decision also names rules that
	// are not exposed to clients. The default does nothing.
	OnDenied func(ctx context.Context, fullMethod string, decision *headgate.Decision)
	// Log receives an error when the store does not decide, at most every 10 seconds for calls and every 10 seconds for messages. The
	// default is slog.Default().
	Log *slog.Logger
}

// Interceptors checks the calls of a server. Install Unary with grpc.ChainUnaryInterceptor for unary calls and Stream with
// grpc.ChainStreamInterceptor for streams; most servers need both. One Interceptors can serve several servers.
type Interceptors struct {
	checker  Checker
	begin    func(context.Context, headgate.Request) (headgate.Decision, error) // Begin or Check of the checker
	options  Options
	messages *streamlimit.Limits
	waiters  delay.Waiters
	failures ratelog.Limiter
}

// New returns interceptors that use a checker. If rules count by authenticated attributes, install the authenticating interceptors
// before these.
func New(checker Checker, options Options) (*Interceptors, error) {
	if checker == nil {
		return nil, errors.New("grpclimit: checker: required: create one with headgate.New")
	}
	if options.MaxWaiters == 0 {
		options.MaxWaiters = defaultMaxWaiters
	}
	if options.Log == nil {
		options.Log = slog.Default()
	}
	if options.Identity == nil {
		resolver, err := identity.New(identity.Options{Log: options.Log})
		if err != nil {
			return nil, fmt.Errorf("grpclimit: %w", err)
		}
		options.Identity = resolver
	}
	i := &Interceptors{
		checker: checker, begin: checker.Check, options: options,
		waiters: delay.Waiters{Max: int64(options.MaxWaiters), Early: true},
	}
	if b, ok := checker.(beginner); ok {
		i.begin = b.Begin
	}
	var err error
	// Hiding all other methods of the checker has every message checked, even if no rule matches it: the checker may decide by more
	// than rules.
	i.messages, err = streamlimit.New(struct{ Checker }{checker}, streamlimit.Options{
		OnExcess: streamlimit.Close, Wait: i.waiters.Hold, Log: options.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("grpclimit: %w", err)
	}
	return i, nil
}

// Unary checks a unary call. It is a grpc.UnaryServerInterceptor.
func (i *Interceptors) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	c := call{Interceptors: i, method: info.FullMethod}
	err := errPanic
	defer func() { c.hold.end(err) }() //nolint:contextcheck // releases do not belong to a request
	var response any
	response, err = c.unary(ctx, req, handler)
	return response, err
}

// Stream checks a stream. It is a grpc.StreamServerInterceptor.
func (i *Interceptors) Stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	c := &call{Interceptors: i, method: info.FullMethod}
	err := errPanic
	defer func() { c.hold.end(err) }()
	err = c.stream(srv, stream, info, handler)
	return err
}
