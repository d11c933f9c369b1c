package grpclimit

import (
	"context"
	"net"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/streamlimit"
)

// call is one call or stream. It is used by one goroutine at a time.
type call struct {
	*Interceptors
	method string
	// attributes are the values of names. They are resolved once, and again if changed rules use other names.
	attributes headgate.Attributes
	names      []string
	// begun is whether the call was decided. It acquires units only once.
	begun bool
	hold  hold
	gate  *streamlimit.Gate // of the messages, if they are checked
}

func (c *call) unary(ctx context.Context, req any, handler grpc.UnaryHandler) (any, error) {
	if denial := c.check(ctx, req); denial != nil {
		return nil, denial.Err()
	}
	return handler(ctx, req)
}

func (c *call) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	checked := &checkedStream{ServerStream: stream, check: c.check}
	if info.IsClientStream {
		ctx := stream.Context()
		if denial := c.check(ctx, nil); denial != nil {
			return denial.Err()
		}
		if c.options.PerMessage == nil || !c.options.PerMessage(info.FullMethod) {
			return handler(srv, stream)
		}
		c.gate = c.messages.OpenFunc(func(names ...string) headgate.Attributes { return c.ofMessages(ctx, names) })
		checked.check = c.checkMessage
	}
	err := handler(srv, checked)
	if denial := checked.denial.Load(); denial != nil {
		return denial.Err() // even if the handler treated the error as the end of the stream
	}
	return err
}

// check decides a call and waits for its delay. It returns nil if the call is allowed.
func (c *call) check(ctx context.Context, message any) *status.Status {
	cost := c.cost(message)
	if cost <= 0 {
		return nil
	}
	c.resolve(ctx, c.checker.Attributes())
	decide := c.checker.Check
	if !c.begun {
		decide, c.begun = c.begin, true
	}
	d, err := decide(ctx, headgate.Request{Attributes: c.attributes, Cost: cost})
	if d.Holds() {
		c.hold.add(d) //nolint:contextcheck // releases do not belong to a request
	}
	if err != nil || d.Path == headgate.PathFailed {
		limitfields.LogUndecided(ctx, c.options.Log, &c.failures, &d, err, "method", c.method)
	}
	if d.Allowed && d.Delay > 0 {
		if err := c.waiters.Hold(ctx, &d); err != nil {
			return status.FromContextError(err)
		}
	}
	if !d.Allowed {
		return c.deny(ctx, c.method, d)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err) // charged, but the client no longer waits for the handler
	}
	if c.options.Metadata {
		setHeader(ctx, &d)
	}
	return nil
}

// checkMessage decides a message of a stream whose start was checked, and waits for its delay. It returns nil if the message is allowed.
func (c *call) checkMessage(ctx context.Context, message any) *status.Status {
	const unknownSize = -1
	if v := c.gate.MessageWithCost(ctx, unknownSize, c.cost(message)); v.Decision != nil {
		return c.deny(ctx, c.method, *v.Decision)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err)
	}
	return nil
}

// cost returns the cost of a call or message, 0 or less if it is not checked.
func (c *call) cost(message any) int64 {
	if c.options.Cost == nil {
		return 1
	}
	return c.options.Cost(c.method, message)
}

// ofMessages returns the attributes of the stream's messages.
func (c *call) ofMessages(ctx context.Context, names []string) headgate.Attributes {
	c.resolve(ctx, names)
	c.attributes["descriptor.message"] = "received" // whatever Options.Attributes says
	return c.attributes
}

// resolve sets the attributes, unless they are already resolved for these names, which the rules use.
func (c *call) resolve(ctx context.Context, names []string) {
	if c.attributes != nil && slices.Equal(names, c.names) {
		return
	}
	var from net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr
	}
	md, _ := metadata.FromIncomingContext(ctx)
	c.attributes, c.names = c.options.Identity.Metadata(md, from, c.method, names...), names
	if c.options.Attributes != nil {
		c.options.Attributes(ctx, c.attributes)
	}
}

// checkedStream checks messages as the handler receives them: every message of a client stream, or the single message of a
// server-streaming call.
type checkedStream struct {
	grpc.ServerStream
	check func(ctx context.Context, message any) *status.Status
	// denial is set once. Other goroutines of the handler may read it.
	denial atomic.Pointer[status.Status]
}

// RecvMsg receives and checks a message. Only one goroutine calls it at a time, as grpc.ServerStream requires.
func (s *checkedStream) RecvMsg(m any) error {
	if denial := s.denial.Load(); denial != nil {
		return denial.Err()
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if denial := s.check(s.Context(), m); denial != nil {
		s.denial.Store(denial)
		return denial.Err()
	}
	return nil
}
