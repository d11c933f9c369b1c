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

// maxStreams is the maximum number of open streams of a server. An idle stream takes about 20 kB, and a client process needs one.
const maxStreams = 2_000

// calls limits the calls of a gRPC server: the time from the request to the response of a unary call, and the number of
// streams, which may last indefinitely.
type calls struct {
	// streams returns the full names of streaming methods.
	streams func() map[string]bool
	tap     tap.ServerInHandle

	mu   sync.Mutex
	open int
	from map[netip.Addr]int
}

// begin sets a deadline for a call, whose request may never arrive. gRPC reads the request before it calls an interceptor.
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
		return ctx, nil // the caller's own deadline
	}
	// gRPC cancels the parent context when the call ends, which stops the timer.
	limited, cancel := context.WithTimeout(ctx, callTimeout) //nolint:gosec // as above
	_ = cancel
	return limited, nil
}

// stream intercepts streams and rejects those over the limit.
func (c *calls) stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	var from netip.Addr
	if p, ok := peer.FromContext(stream.Context()); ok {
		from = netaddr.PeerNetwork(p.Addr.String()).Addr()
	}
	if err := c.enter(from); err != nil {
		return err
	}
	defer c.leave(from)
	return handle(server, &countedStream{ServerStream: stream, sized: sizedMessage{to: connectionOf(stream.Context())}})
}

func (c *calls) enter(from netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	const remedy = ": use one stream for all checks of a process, or another server"
	switch {
	case c.open >= maxStreams:
		return status.Errorf(codes.ResourceExhausted, "too many streams: %d are open%s", maxStreams, remedy)
	case c.from[from] >= maxStreams/addressShare:
		return status.Errorf(codes.ResourceExhausted, "too many streams: %d are open from %s%s", maxStreams/addressShare, from, remedy)
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

// streamsOf returns the full names of a server's streaming methods.
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
