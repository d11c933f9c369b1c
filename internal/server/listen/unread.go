package listen

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
)

// maxUnread is how many bytes of answers gRPC may hold for the clients of a listener that do not read them. A client takes an
// answer within milliseconds; beyond this much the connection with the most of them is closed. gRPC itself has no bound but 100
// calls for a connection, nor an end to how long it keeps them. Small messages take up to five times their bytes.
const maxUnread = 16 << 20

// queue notes n bytes of an answer that gRPC is about to hold for the client.
func (c *connection) queue(n int) {
	c.unread.Add(int64(n))
	if c.listener.unread.Add(int64(n)) > maxUnread {
		c.listener.shed()
	}
}

// Write notes what the client takes.
func (c *connection) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	for n > 0 {
		unread := c.unread.Load()
		taken := min(unread, int64(n))
		if taken <= 0 {
			break
		}
		if c.unread.CompareAndSwap(unread, unread-taken) {
			c.listener.unread.Add(-taken)
			break
		}
	}
	return n, err
}

// settle forgets what is not read: nobody will.
func (c *connection) settle() { c.listener.unread.Add(-c.unread.Swap(0)) }

// shed closes the connection with the most unread answers, as long as there are too many in all.
func (l *Listener) shed() {
	for {
		worst := l.worst()
		if worst == nil {
			return
		}
		_ = worst.Close() // its client is cut off either way
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
		l.warn("clients do not read their answers: closing the connection with the most of them",
			"address", worst.Conn.RemoteAddr().String(), "bytes", worst.unread.Load(), "most", maxUnread)
		worst.settle() // no other call closes another one for it
	}
	return worst
}

// RemoteAddr returns an address from which the interceptors find the connection.
func (c *connection) RemoteAddr() net.Addr { return remote{c} }

type remote struct{ c *connection }

func (r remote) Network() string { return r.c.Conn.RemoteAddr().Network() }
func (r remote) String() string  { return r.c.Conn.RemoteAddr().String() }

// connectionOf returns the connection of a call, or nil if it came by another listener.
func connectionOf(ctx context.Context) *connection {
	if from, ok := peer.FromContext(ctx); ok {
		if r, ok := from.Addr.(remote); ok {
			return r.c
		}
	}
	return nil
}

// answer is a message of which the connection is to know the size. The codec finds it out.
type answer struct {
	message any
	to      *connection
}

// countingCodec counts what answers have.
type countingCodec struct{ encoding.CodecV2 }

func (c countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(*answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data, err := c.CodecV2.Marshal(a.message)
	if err == nil {
		a.to.queue(data.Len())
	}
	return data, err
}

func countUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	response, err := handle(ctx, request)
	if to := connectionOf(ctx); to != nil && err == nil && ctx.Err() == nil {
		return &answer{response, to}, nil
	}
	return response, err
}

// countedStream counts what is sent in a stream.
type countedStream struct {
	grpc.ServerStream
	answer answer
}

func (s *countedStream) SendMsg(message any) error {
	if s.answer.to == nil {
		return s.ServerStream.SendMsg(message)
	}
	s.answer.message = message
	return s.ServerStream.SendMsg(&s.answer)
}
