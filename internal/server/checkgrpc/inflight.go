package checkgrpc

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/server/check"
)

// What callers share. A stream or batch that gets nothing of it still proceeds, by what is reserved for each, so that callers
// who read no answers slow others down at most.
const (
	// reserved is how many checks each stream may have in flight, whatever others do.
	reserved = 2
	// serverFactor is how many times maxInFlight checks may be in flight beyond that; one connection may have maxInFlight of
	// them. A check that waits for the store takes about 25 kB if it has as many attributes as it may.
	serverFactor = 4
	// smallMessage is what package client sends at most, but for a single check that is larger. Larger messages are from a
	// budget: connectionBytes on one connection, serverBytes in all.
	smallMessage    = 64 << 10
	connectionBytes = 16 << 20
	serverBytes     = 64 << 20
	// waitingMessage is what a message of a stream may have that waits until the stream's answers are taken. Larger ones are from a
	// budget, too: waitingConnectionBytes on one connection, waitingServerBytes in all.
	waitingMessage         = 4 << 10
	waitingConnectionBytes = 4 << 20
	waitingServerBytes     = 16 << 20
)

// pair is the budget of a connection and the server's, of which it takes.
type pair struct{ connection, server *check.Budget }

func (p pair) take(n int64) int64 {
	wanted := p.connection.Take(n)
	taken := p.server.Take(wanted)
	p.connection.Give(wanted - taken)
	return taken
}

func (p pair) give(n int64) {
	p.connection.Give(n)
	p.server.Give(n)
}

// connection is what the calls of one connection share.
type connection struct {
	calls                  int
	checks, bytes, waiting check.Budget
}

// connections has those with calls.
type connections struct {
	checks, bytes, waiting check.Budget
	perConnection          int64 // checks
	mu                     sync.Mutex
	open                   map[string]*connection
}

func newConnections(maxInFlight int) *connections {
	c := &connections{perConnection: int64(maxInFlight), open: map[string]*connection{}}
	c.checks.Give(serverFactor * int64(maxInFlight))
	c.bytes.Give(serverBytes)
	c.waiting.Give(waitingServerBytes)
	return c
}

// share is what a call may take of.
type share struct{ checks, bytes, waiting pair }

// join returns the share of a call. Leave when it is over.
func (c *connections) join(ctx context.Context) (s share, leave func()) {
	name := ""
	if from, ok := peer.FromContext(ctx); ok {
		name = from.Addr.String()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.open[name]
	if own == nil {
		own = &connection{}
		own.checks.Give(c.perConnection)
		own.bytes.Give(connectionBytes)
		own.waiting.Give(waitingConnectionBytes)
		c.open[name] = own
	}
	own.calls++
	return share{pair{&own.checks, &c.checks}, pair{&own.bytes, &c.bytes}, pair{&own.waiting, &c.waiting}}, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if own.calls--; own.calls == 0 {
			delete(c.open, name)
		}
	}
}

// hold takes the bytes of a message until release is called. Its error is for the caller.
func (s *share) hold(size int) (release func(), err error) {
	return s.bytes.hold(size, smallMessage)
}

// holdWaiting does that for a message of a stream that is to wait, unless hold has done it.
func (s *share) holdWaiting(size int) (release func(), err error) {
	if size > smallMessage {
		return func() {}, nil
	}
	return s.waiting.hold(size, waitingMessage)
}

// hold takes a size above what is free.
func (p pair) hold(size, free int) (release func(), err error) {
	if size <= free {
		return func() {}, nil
	}
	if taken := p.take(int64(size)); taken < int64(size) {
		p.give(taken)
		return nil, status.Errorf(codes.ResourceExhausted, "the message has %d bytes, and the server holds too many large ones: "+
			"send at most %d bytes at a time, and read answers as they come", size, free)
	}
	return func() { p.give(int64(size)) }, nil
}

// window is how many checks of a stream are in flight: read, and their answers not sent. The first of them are reserved for
// the stream, the others it borrows.
type window struct {
	most, reserved int64
	shared         pair
	// freed has one if there may be room again.
	freed chan struct{}

	mu     sync.Mutex
	used   int64
	closed bool
}

func newWindow(maxInFlight int, shared pair) *window {
	most := int64(maxInFlight)
	return &window{most: most, reserved: min(reserved, most), shared: shared, freed: make(chan struct{}, 1)}
}

// enter waits until some of n checks may be in flight, and returns how many.
func (w *window) enter(ctx context.Context, n int) (int, error) {
	for {
		if entered := w.tryEnter(int64(n)); entered > 0 {
			return int(entered), nil
		}
		select {
		case <-w.freed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (w *window) tryEnter(n int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(n, w.most-w.used)
	own := max(0, min(n, w.reserved-w.used))
	n = own + w.shared.take(n-own)
	w.used += n
	return n
}

// leave ends n checks, and gives back what was borrowed for them.
func (w *window) leave(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	before := w.borrowed()
	w.used -= int64(n)
	w.shared.give(before - w.borrowed())
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// close gives back all that is borrowed.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.shared.give(w.borrowed())
	}
	w.closed = true
}

func (w *window) borrowed() int64 { return max(0, w.used-w.reserved) }
