package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	// maxMessage is the size at which a message is full. Queued checks are sent in one message, but a message larger than a server
	// accepts would end the stream.
	maxMessage = 64 << 10
	// maxTimeouts is the number of consecutive checks without a response after which a server is considered hung.
	maxTimeouts = 5
)

// errNotSent means that a check was not sent and may be sent to another server.
var errNotSent = errors.New("not sent")

// link is a connection to a server with its stream. One goroutine sends queued checks, another receives responses. Both end with the
// stream.
type link struct {
	server *server
	conn   *grpc.ClientConn
	stream grpc.ClientStream
	ctx    context.Context
	cancel context.CancelCauseFunc
	wake   chan struct{} // wakes the sender
	ended  chan error    // the reason why the link has ended, or will end

	draining bool // guarded by Client.mu

	mu      sync.Mutex
	queue   []*waiter          // not yet sent
	sent    map[uint64]*waiter // waiting for a response
	lastID  uint64
	unary   int  // calls outside the stream
	begun   int  // checks that have a response with slots, or one that was not read yet
	retired bool // accepts no more checks
	// releases are not yet sent.
	releases []release
	// timeouts counts the calls that timed out since the server last responded. The first of them started at silentSince.
	timeouts    int
	silentSince time.Time
}

func newLink(ctx context.Context, s *server, conn *grpc.ClientConn) *link {
	l := &link{
		server: s, conn: conn,
		wake: make(chan struct{}, 1), ended: make(chan error, 2), sent: map[uint64]*waiter{},
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// open opens the stream, waits for the server's first message and starts the goroutines.
func (l *link) open() error {
	desc := &checkv1.CheckService_ServiceDesc.Streams[0]
	stream, err := l.conn.NewStream(l.ctx, desc, checkv1.CheckService_CheckStream_FullMethodName,
		grpc.ForceCodecV2(codec{}), grpc.StaticMethod())
	if err != nil {
		return l.cause(err)
	}
	l.stream = stream
	var in incoming
	if err := l.receive(&in); err != nil {
		return err
	}
	client := l.server.client
	client.add(l)
	client.running.Go(l.send)
	client.running.Go(func() {
		for {
			if err := l.receive(&in); err != nil {
				l.end(err)
				return
			}
		}
	})
	return nil
}

// cause returns the reason why the link was canceled, or else a readable form of err.
func (l *link) cause(err error) error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errors.New("server closed the stream")
	}
	return err
}

// enqueue queues a check to be sent. It returns false if the link accepts no more checks.
func (l *link) enqueue(w *waiter) bool {
	l.mu.Lock()
	if l.retired {
		l.mu.Unlock()
		return false
	}
	w.id, w.index = 0, len(l.queue)
	l.queue = append(l.queue, w)
	l.mu.Unlock()
	l.wakeSender()
	return true
}

// wait waits until a check has a response, has failed or has timed out.
func (l *link) wait(w *waiter) error {
	select {
	case <-w.done:
		return w.err
	case <-w.timer.C:
	}
	cause := fmt.Errorf("no response within %v", l.server.client.options.Timeout)
	sent, ok := l.abandon(w)
	switch {
	case !ok:
		<-w.done
		if w.err != nil && errors.Is(w.err, errNotSent) {
			return fmt.Errorf("%w: %w", headgate.ErrUnavailable, cause)
		}
		return w.err
	case sent:
		return unanswered(cause)
	}
	return fmt.Errorf("%w: %w", headgate.ErrUnavailable, cause)
}

// abandon removes a check that timed out. It returns ok = false if the check is already completed.
func (l *link) abandon(w *waiter) (sent, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.id != 0 && l.sent[w.id] == w:
		delete(l.sent, w.id)
		sent = true
	case w.id == 0 && w.index < len(l.queue) && l.queue[w.index] == w:
		last := len(l.queue) - 1
		l.queue[w.index] = l.queue[last]
		l.queue[w.index].index = w.index
		l.queue = slices.Delete(l.queue, last, last+1)
	default:
		return false, false
	}
	l.addTimeout(w.started)
	return sent, true
}

// addTimeout records that a call that started at this time has timed out. It cancels the link if the server has not sent anything
// for at least Options.Timeout.
func (l *link) addTimeout(started time.Time) {
	if l.timeouts == 0 {
		l.silentSince = started
	}
	l.timeouts++
	if silence := time.Since(l.silentSince); l.timeouts >= maxTimeouts && silence >= l.server.client.options.Timeout {
		l.cancel(fmt.Errorf("no response to %d checks, nothing received for %v", l.timeouts, silence))
	}
}

// wakeSender wakes the sending goroutine.
func (l *link) wakeSender() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// send sends queued checks until the link ends.
func (l *link) send() {
	var out raw
	for {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
		runtime.Gosched() // lets other goroutines add their checks to the same message
		for l.fill(&out) {
			if err := l.stream.SendMsg(&out); err != nil {
				if !errors.Is(err, io.EOF) { // the receiver gets the actual error
					l.cancel(err)
				}
				return
			}
		}
		if l.finished() {
			_ = l.stream.CloseSend() // cannot fail
			return
		}
	}
}

// fill moves releases and queued checks into a message. From then on they count as sent. It returns false if there are none.
func (l *link) fill(out *raw) bool {
	out.data = out.data[:0]
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for ; n < len(l.releases) && len(out.data) < maxMessage; n++ {
		out.appendRelease(&l.releases[n])
	}
	l.releases = slices.Delete(l.releases, 0, n)
	n = 0
	for ; n < len(l.queue) && len(out.data) < maxMessage; n++ {
		w := l.queue[n]
		l.lastID++
		w.id = l.lastID
		l.sent[w.id] = w
		out.append(w.id, w.request)
	}
	l.queue = slices.Delete(l.queue, 0, n)
	for i, w := range l.queue {
		w.index = i
	}
	return len(out.data) > 0
}

// finished reports whether the link is retired and has no pending calls. Releases need not be sent: the server releases with the stream.
func (l *link) finished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retired && len(l.queue) == 0 && len(l.sent) == 0 && l.unary == 0 && l.begun == 0
}

// retire makes the link end when it has no more pending calls.
func (l *link) retire() {
	l.mu.Lock()
	l.retired = true
	l.mu.Unlock()
	l.wakeSender()
}

// receive receives a message and completes the checks in it.
func (l *link) receive(in *incoming) error {
	if err := l.stream.RecvMsg(in); err != nil {
		return l.cause(err)
	}
	l.mu.Lock()
	l.timeouts = 0
	var failed error
	for i := range in.replies {
		failed = cmp.Or(failed, l.claim(&in.replies[i]))
	}
	wake := l.retired || len(l.releases) > 0
	l.mu.Unlock()
	for i := range in.replies {
		if r := &in.replies[i]; r.waiter != nil {
			r.waiter.complete(r)
		}
	}
	if failed != nil {
		return failed
	}
	if wake {
		l.wakeSender()
	}
	client := l.server.client
	if in.rules != nil {
		client.setAttributes(l.server, in.rules.GetAttributes())
	}
	if in.draining && !l.draining {
		client.update(func() { l.draining = true })
		l.ended <- errDraining
	}
	return nil
}

// end closes the connection and fails all pending checks.
func (l *link) end(err error) {
	l.server.client.remove(l)
	l.cancel(err)
	l.mu.Lock()
	l.retired = true
	queue, sent := l.queue, l.sent
	l.queue, l.sent = nil, nil
	l.mu.Unlock()
	for _, w := range queue {
		w.fail(errNotSent)
	}
	for _, w := range sent {
		w.fail(unanswered(err))
	}
	_ = l.conn.Close() // fails only if it is already closed
	l.ended <- err
}
