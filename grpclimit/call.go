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
	return c.admit(ctx, c.method, headgate.Request{Attributes: c.attributes, Cost: cost}, first)
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
	call       call
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
