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
)

// messageAttribute distinguishes the check of a message from the check of its stream.
const (
	messageAttribute = "descriptor.message"
	messageReceived  = "received"
)

// call is one call or stream. It is used by one goroutine at a time.
type call struct {
	*Interceptors
	method string
	// attributes are the values of names. They are resolved once, and again if changed rules use other names.
	attributes headgate.Attributes
	names      []string
	// begun is whether the call was decided. Its messages are not calls of their own, and acquire no units.
	begun bool
	hold  hold
}

func (c *call) unary(ctx context.Context, req any, handler grpc.UnaryHandler) (any, error) {
	if denial := c.check(ctx, req, true); denial != nil {
		return nil, denial.Err()
	}
	return handler(ctx, req)
}

func (c *call) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.IsClientStream {
		if denial := c.check(stream.Context(), nil, true); denial != nil {
			return denial.Err()
		}
		if c.options.PerMessage == nil || !c.options.PerMessage(info.FullMethod) {
			return handler(srv, stream)
		}
	}
	checked := &checkedStream{ServerStream: stream, call: c, perMessage: info.IsClientStream}
	err := handler(srv, checked)
	if denial := checked.denial.Load(); denial != nil {
		return denial.Err() // even if the handler treated the error as the end of the stream
	}
	return err
}

// check returns nil if the call or message is allowed. first is false for the messages of a stream whose start was checked.
func (c *call) check(ctx context.Context, message any, first bool) *status.Status {
	cost := int64(1)
	if c.options.Cost != nil {
		cost = c.options.Cost(c.method, message)
	}
	if cost <= 0 {
		return nil
	}
	c.resolve(ctx)
	if !first {
		c.attributes[messageAttribute] = messageReceived
	}
	return c.admit(ctx, headgate.Request{Attributes: c.attributes, Cost: cost}, first)
}

// admit decides one request and waits for its delay. It returns nil if the request is allowed. Only the first of a call acquires units
// of concurrency limits and sends the metadata of Options.Metadata.
func (c *call) admit(ctx context.Context, req headgate.Request, first bool) *status.Status {
	decide := c.checker.Check
	if first && !c.begun {
		decide, c.begun = c.begin, true
	}
	d, err := decide(ctx, req)
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
	if first && c.options.Metadata {
		setHeader(ctx, &d)
	}
	return nil
}

// resolve sets the attributes, unless they are already resolved for the names that the rules use.
func (c *call) resolve(ctx context.Context) {
	names := c.checker.Attributes()
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
	call       *call
	perMessage bool
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
	if denial := s.call.check(s.Context(), m, !s.perMessage); denial != nil {
		s.denial.Store(denial)
		return denial.Err()
	}
	return nil
}
