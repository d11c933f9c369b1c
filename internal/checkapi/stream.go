package checkapi

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
	// stallTime is how long a caller may take no answer while there are some. It is that of answers over HTTP.
	stallTime = 30 * time.Second
)

// stream is one CheckStream under way.
type stream struct {
	*Service
	caller grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse]
	own    share
	// window keeps callers who read no answers from being read from. There is room for as many answers, so that nobody waits
	// to hand one over.
	window  *window
	answers chan *checkv1.StreamAnswer
	// work is for workers that have none. They stay as long as the stream does: a new goroutine for each check would
	// have to grow its stack each time, which takes a fifth of all the time a check does.
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
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxStreams {
		return status.Errorf(codes.ResourceExhausted,
			"there are %d streams open: keep one for all checks of a process, or ask another server", maxStreams)
	}
	own, leave := s.connections.join(caller.Context())
	defer leave()
	st := &stream{
		Service: s, caller: caller, own: own,
		window:  newWindow(s.options.MaxInFlight, own.checks),
		answers: make(chan *checkv1.StreamAnswer, s.options.MaxInFlight),
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
	ticker := time.NewTicker(stallTime)
	defer ticker.Stop()
	for last := uint64(0); ; {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
			sends := s.sends.Load()
			if sends%2 == 1 && sends == last {
				return status.Errorf(codes.ResourceExhausted,
					"no answer was read for %v: read answers as they come, or close the stream", stallTime)
			}
			last = sends
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
	close(s.answers)
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
	left, entered := message.n, 0
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
	for more := true; more; check, more = <-s.work {
		response, err := s.Check(ctx, check.GetRequest())
		code, text := codeOf(err)
		s.answers <- &checkv1.StreamAnswer{Id: check.GetId(), Response: response, Code: code, Message: text}
	}
}

// send hands out answers until there are no more, and says what the caller should know besides.
func (s *stream) send() error {
	draining := s.draining
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
		message = &checkv1.CheckStreamResponse{}
		select {
		case <-draining:
			message.Draining, draining = true, nil
		case answer, more := <-s.answers:
			if !more {
				return nil
			}
			// Who is about to have an answer gets to it, and both go in one message. Nobody is waited for.
			runtime.Gosched()
			message.Answers = s.ready(answer)
		}
	}
}

// ready is an answer and those that are there by now.
func (s *stream) ready(first *checkv1.StreamAnswer) []*checkv1.StreamAnswer {
	answers := make([]*checkv1.StreamAnswer, 1+min(len(s.answers), mostAnswers-1))
	answers[0] = first
	for i := 1; i < len(answers); i++ {
		answers[i] = <-s.answers
	}
	return answers
}
