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

// messageAttribute tells the check of a message from that of the stream it came in.
const (
	messageAttribute = "descriptor.message"
	messageReceived  = "received"
)

// call is one call or stream. It is used by one goroutine at a time.
type call struct {
	*Interceptors
	method string
	// attributes are those of names; they are made once, or again if the rules come to look at others.
	attributes headgate.Attributes
	names      []string
}

// check is nil if the call, or its message, may go on.
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

// resolve makes the attributes.
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

// checkedStream checks messages as the handler receives them: all of them, or the one that a client sends which gets a
// stream of answers.
type checkedStream struct {
	grpc.ServerStream
	call       call
	perMessage bool
	// denial is set once, and may be read by a handler's other goroutines.
	denial atomic.Pointer[status.Status]
}

// RecvMsg is called by one goroutine at a time, as the interface demands.
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
