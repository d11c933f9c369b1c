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
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	// mostAnswers keeps a message far below the 4 MB that callers take by default, whatever the number of limits.
	mostAnswers = 64
	// maxChecks is of one message: as many as the smallest checks with an id make of the 64 KiB that package client fills.
	maxChecks = smallMessage / 4
	// stallTime is how long a caller may take no answer while there are some. It is looked at stallChecks times.
	stallTime   = 10 * time.Second
	stallChecks = 2
	// mostIdle is how many workers without a check all streams keep.
	mostIdle = 1_024
)

// stream is one CheckStream under way.
type stream struct {
	*Service
	caller grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse]
	own    share
	// window keeps callers who read no answers from being read from.
	window  *window
	answers answerQueue
	// work is for workers that have none. They stay as long as the stream does, but for those above mostIdle: a new goroutine
	// for each check would have to grow its stack each time, which takes a fifth of all the time a check does.
	work    chan *checkv1.StreamCheck
	workers sync.WaitGroup
	// sends counts the beginnings and ends of sending: it is odd while a message is being sent.
	sends atomic.Uint64
}

// CheckStream decides requests as they come, many at once. It ends when the caller has closed its side and everything
// is answered, when the caller is gone, or when it takes no answers.
func (s *Service) CheckStream(
	caller grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse],
) error {
	own, leave := s.connections.join(caller.Context())
	defer leave()
	st := &stream{
		Service: s, caller: caller, own: own,
		window:  newWindow(s.maxInFlight, own.checks),
		answers: answerQueue{ready: make(chan struct{}, 1)},
		work:    make(chan *checkv1.StreamCheck),
	}
	defer st.window.close()
	ended := make(chan error, 1)
	go func() { ended <- st.serve() }()
	return st.wait(ended)
}

// wait returns when the stream has ended or is stalled. What is still under way then ends with the context of the call, which
// gRPC cancels when the handler returns.
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
					"no answer was read for %v: read answers as they come, or close the stream", stallTime)
			}
		}
	}
}

// serve reads, decides and answers until the caller has closed its side.
func (s *stream) serve() error {
	ctx, cancel := context.WithCancel(s.caller.Context())
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		err := s.send()
		if err != nil {
			cancel() // nobody waits for answers any more
		}
		sent <- err
	}()
	err := s.read(ctx)
	close(s.work)
	s.workers.Wait()
	s.answers.close()
	if failed := <-sent; failed != nil {
		return failed
	}
	return err
}

// read has checks decided until no more come.
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

// begin hands the checks of a message to workers, as far as the window lets it. If the caller hangs up meanwhile the rest is decided
// here: those requests were made, too.
func (s *stream) begin(ctx context.Context, message *list) error {
	if err := message.validate("checks in a message", maxChecks, ""); err != nil {
		return err
	}
	release, err := s.own.hold(len(message.data))
	if err != nil {
		return err
	}
	defer release()
	entered := int(s.window.tryEnter(int64(message.n)))
	left := message.n - entered
	if left > 0 {
		release, err := s.own.holdWaiting(len(message.data))
		if err != nil {
			return err
		}
		defer release()
	}
	var gone error
	for data := range message.items() {
		if entered == 0 && gone == nil {
			entered, gone = s.window.enter(ctx, left)
			left -= entered
		}
		entered--
		check, err := readCheck(data)
		if err != nil {
			return unreadable(err)
		}
		if gone != nil {
			_, _ = s.Check(ctx, check.GetRequest()) // nobody waits for the answer
			continue
		}
		select {
		case s.work <- check:
		default:
			s.workers.Go(func() { s.decideAll(ctx, check) })
		}
	}
	return gone
}

// decideAll is a worker: it decides a check, and others that come later.
func (s *stream) decideAll(ctx context.Context, check *checkv1.StreamCheck) {
	for more := true; more; {
		response, err := s.Check(ctx, check.GetRequest())
		code, text := codeOf(err)
		s.answers.put(&checkv1.StreamAnswer{Id: check.GetId(), Response: response, Code: code, Message: text})
		if s.idle.Add(1) > mostIdle {
			s.idle.Add(-1)
			return
		}
		check, more = <-s.work
		s.idle.Add(-1)
	}
}

// send hands out answers until there are no more, and says what the caller should know besides.
func (s *stream) send() error {
	draining := (<-chan struct{})(s.draining)
	var known *headgate.RuleSet
	message := &checkv1.CheckStreamResponse{}
	select {
	case <-draining: // who comes now should not ask anything first
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

// next waits for what to send, and returns nil when there will be nothing more. It sets draining to nil once that is said.
func (s *stream) next(draining *<-chan struct{}) *checkv1.CheckStreamResponse {
	for {
		select {
		case <-*draining:
			*draining = nil
			return &checkv1.CheckStreamResponse{Draining: true}
		case <-s.answers.ready:
			// Who is about to have an answer gets to it, and both go in one message. Nobody is waited for.
			runtime.Gosched()
			answers, closed := s.answers.take()
			if len(answers) > 0 {
				return &checkv1.CheckStreamResponse{Answers: answers}
			}
			if closed {
				return nil
			}
		}
	}
}
