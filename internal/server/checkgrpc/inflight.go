package checkgrpc

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/server/check"
)

// Budgets that callers share. A stream or batch that gets nothing from a budget still proceeds with what is reserved for it,
// so that callers who do not read responses can at most slow down others.
const (
	// reserved is the number of checks that each stream may have in flight regardless of other streams.
	reserved = 2
	// serverFactor times maxInFlight is the number of checks that may be in flight in addition to the reserved ones; one
	// connection may have maxInFlight of them. A check with the maximum number of attributes takes about 25 kB while it waits
	// for the store.
	serverFactor = 4
	// smallMessage is the maximum size of messages of package client, except for a single larger check. Larger messages are
	// charged to a budget: connectionBytes for one connection, serverBytes for all.
	smallMessage    = 64 << 10
	connectionBytes = 16 << 20
	serverBytes     = 64 << 20
	// waitingMessage is the maximum size of a message that waits until the caller reads the stream's responses. Larger ones
	// are also charged to a budget: waitingConnectionBytes for one connection, waitingServerBytes for all.
	waitingMessage         = 4 << 10
	waitingConnectionBytes = 4 << 20
	waitingServerBytes     = 16 << 20
)

// pair combines the budget of a connection with that of the server: units are taken from both.
type pair struct{ connection, server *check.Budget }

func (p pair) take(n int64) int64 {
	wanted := p.connection.Take(n)
	taken := p.server.Take(wanted)
	p.connection.Return(wanted - taken)
	return taken
}

func (p pair) release(n int64) {
	p.connection.Return(n)
	p.server.Return(n)
}

// connection contains the budgets that the calls of one connection share.
type connection struct {
	calls                  int
	checks, bytes, waiting check.Budget
}

// connections contains the connections with running calls.
type connections struct {
	checks, bytes, waiting check.Budget
	perConnection          int64 // checks of one connection
	mu                     sync.Mutex
	open                   map[string]*connection
}

func newConnections(maxInFlight int) *connections {
	c := &connections{perConnection: int64(maxInFlight), open: map[string]*connection{}}
	c.checks.Return(serverFactor * int64(maxInFlight))
	c.bytes.Return(serverBytes)
	c.waiting.Return(waitingServerBytes)
	return c
}

// share contains the budgets of a call.
type share struct{ checks, bytes, waiting pair }

// join returns the share of a call. The caller must call leave when the call ends.
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
		own.checks.Return(c.perConnection)
		own.bytes.Return(connectionBytes)
		own.waiting.Return(waitingConnectionBytes)
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

// hold charges the bytes of a message until release is called. The error is for the caller.
func (s *share) hold(size int) (release func(), err error) {
	return s.bytes.hold(size, smallMessage)
}

// holdWaiting does the same for a message that has to wait, unless hold has charged it.
func (s *share) holdWaiting(size int) (release func(), err error) {
	if size > smallMessage {
		return func() {}, nil
	}
	return s.waiting.hold(size, waitingMessage)
}

// hold charges a size above free.
func (p pair) hold(size, free int) (release func(), err error) {
	if size <= free {
		return func() {}, nil
	}
	if taken := p.take(int64(size)); taken < int64(size) {
		p.release(taken)
		return nil, status.Errorf(codes.ResourceExhausted, "message of %d bytes: too many large messages are in progress: "+
			"send at most %d bytes at a time, and read responses as they arrive", size, free)
	}
	return func() { p.release(int64(size)) }, nil
}

// window counts the checks of a stream in flight, from reading the request to sending the result. The first of them are
// reserved for the stream, the others are borrowed from the shared budget.
type window struct {
	limit, reserved int64
	shared          pair
	// freed has an element if checks may have left the window.
	freed chan struct{}

	mu     sync.Mutex
	used   int64
	closed bool
}

func newWindow(maxInFlight int, shared pair) *window {
	limit := int64(maxInFlight)
	return &window{limit: limit, reserved: min(reserved, limit), shared: shared, freed: make(chan struct{}, 1)}
}

// enter waits until some of n checks may be in flight, and returns their number.
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
	n = min(n, w.limit-w.used)
	own := max(0, min(n, w.reserved-w.used))
	n = own + w.shared.take(n-own)
	w.used += n
	return n
}

// leave removes n checks and returns their borrowed share to the budget.
func (w *window) leave(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	before := w.borrowed()
	w.used -= int64(n)
	w.shared.release(before - w.borrowed())
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// close returns everything borrowed.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.shared.release(w.borrowed())
	}
	w.closed = true
}

func (w *window) borrowed() int64 { return max(0, w.used-w.reserved) }
