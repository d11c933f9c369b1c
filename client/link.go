package client

import (
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
	// mostBytes is when a message is full. Checks that wait go into one message, but one that is larger than a server
	// takes would end the stream.
	mostBytes = 64 << 10
	// mostSilent is how many checks in a row may stay without an answer before a server is taken to hang.
	mostSilent = 5
)

// errNotSent says that a check may go to another server.
var errNotSent = errors.New("not sent")

// link is one connection and the stream in it. A goroutine sends what waits, another receives; they end with the
// stream.
type link struct {
	server *server
	conn   *grpc.ClientConn
	stream grpc.ClientStream
	ctx    context.Context
	cancel context.CancelCauseFunc
	wake   chan struct{} // for the sender
	left   chan error    // why the link is lost, or will be

	draining bool // of Client.mu

	mu      sync.Mutex
	queue   []*waiter          // waiting to be sent
	sent    map[uint64]*waiter // waiting for an answer
	lastID  uint64
	unary   int  // calls besides the stream
	retired bool // takes no more
	// silent is what speaks against a server: how many checks were given up since it was last heard, the first of them asked at since.
	silent int
	since  time.Time
}

func newLink(ctx context.Context, s *server, conn *grpc.ClientConn) *link {
	l := &link{
		server: s, conn: conn,
		wake: make(chan struct{}, 1), left: make(chan error, 2), sent: map[uint64]*waiter{},
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// open waits until the server speaks.
func (l *link) open() error {
	desc := &checkv1.CheckService_ServiceDesc.Streams[0]
	stream, err := l.conn.NewStream(l.ctx, desc, checkv1.CheckService_CheckStream_FullMethodName,
		grpc.ForceCodecV2(codec{}), grpc.StaticMethod())
	if err != nil {
		return l.why(err)
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

// why is the reason of an error, if we are.
func (l *link) why(err error) error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the server ended the stream")
	}
	return err
}

// ask lets a check wait to be sent. It is false if the link takes no more.
func (l *link) ask(w *waiter) bool {
	l.mu.Lock()
	if l.retired {
		l.mu.Unlock()
		return false
	}
	w.id, w.place = 0, len(l.queue)
	l.queue = append(l.queue, w)
	l.mu.Unlock()
	l.poke()
	return true
}

// await returns when there is an answer to a check, or none is to be expected any more.
func (l *link) await(w *waiter) error {
	select {
	case <-w.done:
		return w.err
	case <-w.timer.C:
	}
	cause := fmt.Errorf("no answer within %v", l.server.client.options.Timeout)
	sent, ok := l.giveUp(w)
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

// giveUp takes a check back. It is not ok if the link has let go of it already: then its answer is there.
func (l *link) giveUp(w *waiter) (sent, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.id != 0 && l.sent[w.id] == w:
		delete(l.sent, w.id)
		sent = true
	case w.id == 0 && w.place < len(l.queue) && l.queue[w.place] == w:
		last := len(l.queue) - 1
		l.queue[w.place] = l.queue[last]
		l.queue[w.place].place = w.place
		l.queue = slices.Delete(l.queue, last, last+1)
	default:
		return false, false
	}
	l.unheard(w.started)
	return sent, true
}

// unheard notes that something asked at a time was given up. Only if nothing at all was heard for long enough does that
// speak against the server: callers may have little time.
func (l *link) unheard(asked time.Time) {
	if l.silent == 0 {
		l.since = asked
	}
	l.silent++
	if silence := time.Since(l.since); l.silent >= mostSilent && silence >= l.server.client.options.Timeout {
		l.cancel(fmt.Errorf("%d checks without an answer, and nothing heard for %v", l.silent, silence))
	}
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// send sends what waits, as soon as it does.
func (l *link) send() {
	var out raw
	for {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
		runtime.Gosched() // whoever is about to ask gets into the same message
		for l.fill(&out) {
			if err := l.stream.SendMsg(&out); err != nil {
				if !errors.Is(err, io.EOF) { // of which the receiver knows more
					l.cancel(err)
				}
				return
			}
		}
		if l.finished() {
			_ = l.stream.CloseSend() // it never fails
			return
		}
	}
}

// fill puts checks that wait into a message. From then on they count as sent.
func (l *link) fill(out *raw) bool {
	out.data = out.data[:0]
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for ; n < len(l.queue) && len(out.data) < mostBytes; n++ {
		w := l.queue[n]
		l.lastID++
		w.id = l.lastID
		l.sent[w.id] = w
		out.append(w.id, w.request)
	}
	l.queue = slices.Delete(l.queue, 0, n)
	for i, w := range l.queue {
		w.place = i
	}
	return n > 0
}

func (l *link) finished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retired && len(l.queue) == 0 && len(l.sent) == 0 && l.unary == 0
}

// retire lets the link end when everything is answered.
func (l *link) retire() {
	l.mu.Lock()
	l.retired = true
	l.mu.Unlock()
	l.poke()
}

// receive waits for a message and hands out the answers in it.
func (l *link) receive(in *incoming) error {
	if err := l.stream.RecvMsg(in); err != nil {
		return l.why(err)
	}
	l.mu.Lock()
	l.silent = 0
	for i := range in.answers {
		a := &in.answers[i]
		if a.waiter = l.sent[a.id]; a.waiter != nil {
			delete(l.sent, a.id)
		}
	}
	retired := l.retired
	l.mu.Unlock()
	for i := range in.answers {
		if a := &in.answers[i]; a.waiter != nil {
			a.waiter.answer(a)
		}
	}
	if retired {
		l.poke()
	}
	client := l.server.client
	if in.rules != nil {
		client.learn(l.server, in.rules.GetAttributes())
	}
	if in.draining && !l.draining {
		client.change(func() { l.draining = true })
		l.left <- errDraining
	}
	return nil
}

// end lets go of everything that waits.
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
	_ = l.conn.Close() // it fails only if it is closed
	l.left <- err
}
