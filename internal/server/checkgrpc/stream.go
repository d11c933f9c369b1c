package checkgrpc

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	// maxResults keeps a message far below 4 MB, the default limit of gRPC clients, for any number of limits.
	maxResults = 64
	// maxChecks is the maximum number of checks in one message: as many of the smallest checks with an id as fit into the 64
	// KiB of a message of package client.
	maxChecks = smallMessage / 4
	// stallTime is how long a caller may leave results unread. It is checked stallChecks times.
	stallTime   = 10 * time.Second
	stallChecks = 2
	// maxIdle is the maximum number of idle workers of all streams.
	maxIdle = 1_024
)

// stream is a running CheckStream.
type stream struct {
	*Service
	caller grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse]
	own    share
	// window stops reading from callers who do not read results.
	window  *window
	slots   *check.Slots // what the stream has acquired
	results resultQueue
	// work passes checks to idle workers. Workers stay as long as the stream, except those over maxIdle: a new goroutine for
	// each check would have to grow its stack, which takes 20% of the time of a check.
	work    chan *checkv1.StreamCheck
	workers sync.WaitGroup
	// sends is incremented before and after each send: it is odd while a message is being sent.
	sends atomic.Uint64
}

// CheckStream decides requests as they arrive, concurrently. It ends when the caller has closed its side and all results are
// sent, when the caller has disconnected, or when it does not read results.
func (s *Service) CheckStream(
	caller grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse],
) error {
	own, leave := s.connections.join(caller.Context())
	defer leave()
	st := &stream{
		Service: s, caller: caller, own: own,
		window:  newWindow(s.maxInFlight, own.checks),
		slots:   s.options.Slots.OfStream(),
		results: resultQueue{ready: make(chan struct{}, 1)},
		work:    make(chan *checkv1.StreamCheck),
	}
	defer st.window.close()
	ended := make(chan error, 1)
	go func() { ended <- st.serve() }()
	return st.wait(ended)
}

// wait returns when the stream has ended or is stalled. Its goroutines then end with the context of the call, which gRPC
// cancels when the handler returns.
func (s *stream) wait(ended <-chan error) error {
	ticker := time.NewTicker(stallTime / stallChecks)
	defer ticker.Stop()
	for last, stalls := uint64(0), 0; ; {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
			sends := s.sends.Load()
			if sends%2 == 0 || sends != last {
				last, stalls = sends, 0
				continue
			}
			if stalls++; stalls == stallChecks {
				return status.Errorf(codes.ResourceExhausted,
					"no response was read for %v: read responses as they arrive, or close the stream", stallTime)
			}
		}
	}
}

// serve reads and decides checks and sends results until the caller has closed its side.
func (s *stream) serve() error {
	defer s.slots.Close() // after the last check
	ctx, cancel := context.WithCancel(s.caller.Context())
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		err := s.send()
		if err != nil {
			cancel() // the caller no longer reads
		}
		sent <- err
	}()
	err := s.read(ctx)
	close(s.work)
	s.workers.Wait()
	s.results.close()
	if failed := <-sent; failed != nil {
		return failed
	}
	return err
}

// read starts the received checks until no more arrive.
func (s *stream) read(ctx context.Context) error {
	for {
		var message list
		err := s.caller.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.begin(ctx, &message)
		}
		if err != nil {
			return err
		}
	}
}

// begin releases slots, and passes the checks of a message to workers, as far as the window allows. If the caller hangs up in the
// meantime, the rest is decided here: those requests were made, too.
func (s *stream) begin(ctx context.Context, message *list) error {
	if err := message.validate("checks in a message", maxChecks, ""); err != nil {
		return err
	}
	for data := range message.releases() { //nolint:contextcheck // releases do not belong to a request
		if _, err := release(s.slots, data); err != nil {
			return err
		}
	}
	done, err := s.own.hold(len(message.data))
	if err != nil {
		return err
	}
	defer done()
	entered := int(s.window.tryEnter(int64(message.n)))
	left := message.n - entered
	if left > 0 {
		done, err := s.own.holdWaiting(len(message.data))
		if err != nil {
			return err
		}
		defer done()
	}
	var gone error
	for data := range message.items() {
		if entered == 0 && gone == nil {
			entered, gone = s.window.enter(ctx, left)
			left -= entered
		}
		entered--
		next, err := readCheck(data)
		if err != nil {
			return unreadable(err)
		}
		if gone != nil {
			_, _ = s.check(ctx, next.GetRequest(), s.slots) // the result is not sent
			continue
		}
		select {
		case s.work <- next:
		default:
			s.workers.Go(func() { s.decideAll(ctx, next) })
		}
	}
	return gone
}

// decideAll runs a worker: it decides a check, and others as they arrive.
func (s *stream) decideAll(ctx context.Context, next *checkv1.StreamCheck) {
	for more := true; more; {
		response, err := s.check(ctx, next.GetRequest(), s.slots)
		code, text := codeOf(err)
		s.results.put(&checkv1.StreamAnswer{Id: next.GetId(), Response: response, Code: code, Message: text})
		if s.idle.Add(1) > maxIdle {
			s.idle.Add(-1)
			return
		}
		next, more = <-s.work
		s.idle.Add(-1)
	}
}

// send sends results until there are no more, and notifies the caller of new rules and of draining.
func (s *stream) send() error {
	draining := (<-chan struct{})(s.draining)
	var known *headgate.RuleSet
	message := &checkv1.CheckStreamResponse{}
	select {
	case <-draining: // a new caller should know before its first check
		message.Draining, draining = true, nil
	default:
	}
	for {
		if rules := s.engine.Rules(); rules != known {
			if known == nil || rules.Version() != known.Version() {
				message.Rules = &checkv1.RuleInfo{Version: rules.Version(), Attributes: rules.Attributes()}
			}
			known = rules
		}
		s.sends.Add(1)
		if err := s.caller.Send(message); err != nil {
			return err
		}
		s.sends.Add(1)
		s.window.leave(len(message.GetAnswers()))
		if message = s.next(&draining); message == nil {
			return nil
		}
	}
}

// next waits for the next message, and returns nil if there are no more. It sets draining to nil once the caller was notified.
func (s *stream) next(draining *<-chan struct{}) *checkv1.CheckStreamResponse {
	for {
		select {
		case <-*draining:
			*draining = nil
			return &checkv1.CheckStreamResponse{Draining: true}
		case <-s.results.ready:
			// Workers that are about to finish get a chance to, so that their results are in the same message. It does not
			// wait for them.
			runtime.Gosched()
			results, closed := s.results.take()
			if len(results) > 0 {
				return &checkv1.CheckStreamResponse{Answers: results}
			}
			if closed {
				return nil
			}
		}
	}
}
