package listen

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/headgate/headgate/internal/netaddr"
)

// maxStreams is how many streams a server has open. One that is idle takes some 20 kB, and a process needs one.
const maxStreams = 2_000

// calls bounds the calls of a server of gRPC: how long one may take to send its request and be answered, and how many of those
// there are that may take as long as they like.
type calls struct {
	// streams has the methods of the latter.
	streams func() map[string]bool
	tap     tap.ServerInHandle

	mu   sync.Mutex
	open int
	from map[netip.Addr]int
}

// begin sets an end to a call whose request may never come. gRPC reads it before any interceptor has a say.
func (c *calls) begin(ctx context.Context, call *tap.Info) (context.Context, error) {
	if c.tap != nil {
		var err error
		if ctx, err = c.tap(ctx, call); err != nil {
			return ctx, err
		}
	}
	if c.streams()[call.FullMethodName] {
		return ctx, nil
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= callTimeout {
		return ctx, nil // that of the caller
	}
	// gRPC cancels the context that this one is made of when the call ends, which stops the timer.
	limited, cancel := context.WithTimeout(ctx, callTimeout) //nolint:gosec // as above
	_ = cancel
	return limited, nil
}

// stream serves a stream if there are not too many.
func (c *calls) stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	var from netip.Addr
	if p, ok := peer.FromContext(stream.Context()); ok {
		from = netaddr.PeerNetwork(p.Addr.String()).Addr()
	}
	if err := c.enter(from); err != nil {
		return err
	}
	defer c.leave(from)
	return handle(server, &countedStream{ServerStream: stream, answer: answer{to: connectionOf(stream.Context())}})
}

func (c *calls) enter(from netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	const instead = ": keep one for all checks of a process, or ask another server"
	switch {
	case c.open >= maxStreams:
		return status.Errorf(codes.ResourceExhausted, "there are %d streams open%s", maxStreams, instead)
	case c.from[from] >= maxStreams/addressShare:
		return status.Errorf(codes.ResourceExhausted, "there are %d streams open from %s%s", maxStreams/addressShare, from, instead)
	}
	c.open++
	c.from[from]++
	return nil
}

func (c *calls) leave(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.from[from]--; c.from[from] == 0 {
		delete(c.from, from)
	}
}

// streamsOf returns the methods of a server with more than one message on either side.
func streamsOf(server *grpc.Server) map[string]bool {
	streams := map[string]bool{}
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			if method.IsClientStream || method.IsServerStream {
				streams["/"+service+"/"+method.Name] = true
			}
		}
	}
	return streams
}
