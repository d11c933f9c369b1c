package checkapi

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// mostAnswers keeps a message far below the 4 MB that callers take by default, whatever the number of limits.
const mostAnswers = 64

// stream is one CheckStream under way.
type stream struct {
	*Service
	caller grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse]
	// slots holds one for each check that was read and whose answer is not sent: callers who read no answers are not read
	// from either. There is room for as many answers, so that nobody waits to hand one over.
	slots   chan struct{}
	answers chan *checkv1.StreamAnswer
	// work is for workers that have none. They stay as long as the stream does: a new goroutine for each check would
	// have to grow its stack each time, which takes a fifth of all the time a check does.
	work    chan *checkv1.StreamCheck
	workers sync.WaitGroup
}

// CheckStream decides requests as they come, many at once. It ends when the caller has closed its side and everything
// is answered, or when the caller is gone.
func (s *Service) CheckStream(
	caller grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse],
) error {
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxStreams {
		return status.Errorf(codes.ResourceExhausted,
			"there are %d streams open: keep one for all checks of a process, or ask another server", maxStreams)
	}
	st := &stream{
		Service: s, caller: caller,
		slots:   make(chan struct{}, s.options.MaxInFlight),
		answers: make(chan *checkv1.StreamAnswer, s.options.MaxInFlight),
		work:    make(chan *checkv1.StreamCheck),
	}
	ctx, cancel := context.WithCancel(caller.Context())
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		err := st.send()
		if err != nil {
			cancel() // nobody waits for answers any more
		}
		sent <- err
	}()
	err := st.read(ctx)
	close(st.work)
	st.workers.Wait()
	close(st.answers)
	if failed := <-sent; failed != nil {
		return failed
	}
	return err
}

// read has checks decided until no more come.
func (s *stream) read(ctx context.Context) error {
	for {
		message, err := s.caller.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, check := range message.GetChecks() {
			select {
			case s.slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case s.work <- check:
			default:
				s.workers.Go(func() { s.decideAll(ctx, check) })
			}
		}
	}
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
		if err := s.caller.Send(message); err != nil {
			return err
		}
		for range message.GetAnswers() {
			<-s.slots
		}
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
