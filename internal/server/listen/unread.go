package listen

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
)

// maxUnread is the maximum number of response bytes that gRPC may buffer for the clients of a listener. A client normally
// reads a response within milliseconds. Over this limit the connection with the most unread bytes is closed. gRPC itself only
// limits a connection to 100 calls, and buffers their responses indefinitely. Small messages take up to five times their
// size.
const maxUnread = 16 << 20

// queue counts n response bytes that gRPC is about to buffer.
func (c *connection) queue(n int) {
	c.unread.Add(int64(n))
	if c.listener.unread.Add(int64(n)) > maxUnread {
		c.listener.shed()
	}
}

// Write counts the bytes that are written to the client.
func (c *connection) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	for n > 0 {
		unread := c.unread.Load()
		written := min(unread, int64(n))
		if written <= 0 {
			break
		}
		if c.unread.CompareAndSwap(unread, unread-written) {
			c.listener.unread.Add(-written)
			break
		}
	}
	return n, err
}

// settle discards the count of unread bytes when the connection is closed.
func (c *connection) settle() { c.listener.unread.Add(-c.unread.Swap(0)) }

// shed closes the connection with the most unread bytes until the listener is within maxUnread.
func (l *Listener) shed() {
	for {
		worst := l.worst()
		if worst == nil {
			return
		}
		_ = worst.Close() // the connection is lost in any case
	}
}

// worst returns the connection to close, or nil.
func (l *Listener) worst() (worst *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unread.Load() <= maxUnread {
		return nil
	}
	for c := range l.open {
		if unread := c.unread.Load(); unread > 0 && (worst == nil || unread > worst.unread.Load()) {
			worst = c
		}
	}
	if worst != nil {
		l.warn("too many unread responses: closing the connection with the most unread bytes",
			"address", worst.Conn.RemoteAddr().String(), "bytes", worst.unread.Load(), "limit", maxUnread)
		worst.settle() // so that a concurrent call does not close another one
	}
	return worst
}

// RemoteAddr returns an address through which interceptors find the connection.
func (c *connection) RemoteAddr() net.Addr { return connAddr{c} }

type connAddr struct{ c *connection }

func (r connAddr) Network() string { return r.c.Conn.RemoteAddr().Network() }
func (r connAddr) String() string  { return r.c.Conn.RemoteAddr().String() }

// connectionOf returns the connection of a call, or nil if the call did not arrive on a Listener.
func connectionOf(ctx context.Context) *connection {
	if from, ok := peer.FromContext(ctx); ok {
		if r, ok := from.Addr.(connAddr); ok {
			return r.c
		}
	}
	return nil
}

// sizedMessage is a response whose size the codec reports to the connection.
type sizedMessage struct {
	message any
	to      *connection
}

// countingCodec counts the bytes of responses.
type countingCodec struct{ encoding.CodecV2 }

func (c countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*sizedMessage)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data, err := c.CodecV2.Marshal(m.message)
	if err == nil {
		m.to.queue(data.Len())
	}
	return data, err
}

func countUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	response, err := handle(ctx, request)
	if to := connectionOf(ctx); to != nil && err == nil && ctx.Err() == nil {
		return &sizedMessage{response, to}, nil
	}
	return response, err
}

// countedStream counts the bytes sent on a stream.
type countedStream struct {
	grpc.ServerStream
	sized sizedMessage
}

func (s *countedStream) SendMsg(message any) error {
	if s.sized.to == nil {
		return s.ServerStream.SendMsg(message)
	}
	s.sized.message = message
	return s.ServerStream.SendMsg(&s.sized)
}
