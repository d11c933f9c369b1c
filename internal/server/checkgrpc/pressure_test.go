package checkgrpc_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// wire is the server's side of a stream without a network, so that synctest knows when nothing moves any more.
type wire struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *checkv1.CheckStreamRequest
	out chan *checkv1.CheckStreamResponse
}

func (w *wire) Context() context.Context { return w.ctx }

func (w *wire) RecvMsg(into any) error {
	select {
	case message, more := <-w.in:
		if !more {
			return io.EOF
		}
		data, err := proto.Marshal(message)
		if err != nil {
			return err
		}
		return checkgrpc.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, into)
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

func (w *wire) Recv() (*checkv1.CheckStreamRequest, error) {
	message := &checkv1.CheckStreamRequest{}
	return message, w.RecvMsg(message)
}

func (w *wire) Send(message *checkv1.CheckStreamResponse) error {
	select {
	case w.out <- message:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// pressed is a stream whose checks wait until they may pass.
type pressed struct {
	wire
	asked atomic.Int64
	pass  chan struct{}
	ended chan error
}

// press starts a stream with at most 4 checks under way, and takes its first message.
func press(ctx context.Context, t *testing.T) *pressed {
	p := &pressed{
		wire: wire{
			ctx: ctx,
			in:  make(chan *checkv1.CheckStreamRequest), out: make(chan *checkv1.CheckStreamResponse),
		},
		pass: make(chan struct{}), ended: make(chan error, 1),
	}
	check := func(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
		p.asked.Add(1)
		select {
		case <-p.pass:
			return echo(req), nil
		case <-ctx.Done():
			return headgate.Decision{}, ctx.Err()
		}
	}
	service := checkgrpc.NewNarrow(&engine{limiter(t), check}, 4)
	ctx, cancel := context.WithCancel(ctx)
	p.ctx = ctx
	go func() {
		defer cancel() // as gRPC does when a handler returns
		p.ended <- service.CheckStream(&p.wire)
	}()
	if first := <-p.out; first.GetRules() == nil || len(first.GetAnswers()) != 0 {
		t.Errorf("first message: %v", first)
	}
	return p
}

// expect waits until nothing moves any more.
func (p *pressed) expect(t *testing.T, when string, asked int64) {
	t.Helper()
	synctest.Wait()
	if got := p.asked.Load(); got != asked {
		t.Errorf("%s: %d checks were begun, want %d", when, got, asked)
	}
}

// answers takes a message with so many answers.
func (p *pressed) answers(t *testing.T, when string, n int) {
	t.Helper()
	if message := <-p.out; len(message.GetAnswers()) != n {
		t.Errorf("%s: %v, want %d answers", when, message, n)
	}
}

func TestBackPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := press(t.Context(), t)
		p.in <- ask(1, 3)
		p.expect(t, "3 checks", 3)
		p.in <- ask(4, 3)
		p.expect(t, "3 more", 4)
		select {
		case p.in <- ask(7, 1):
			t.Error("the stream is read on")
		default:
		}
		p.pass <- struct{}{}
		p.answers(t, "one is decided, and goes out alone", 1)
		p.expect(t, "one is answered", 5)

		// The caller takes no answers: one message is on its way to it, the others wait.
		p.pass <- struct{}{}
		p.expect(t, "one is decided", 5)
		for range 3 {
			p.pass <- struct{}{}
		}
		p.expect(t, "all are decided", 5)
		p.answers(t, "the first", 1)
		p.expect(t, "one is answered", 6)
		p.answers(t, "what came together goes together", 3)

		close(p.in)
		p.expect(t, "the caller has closed", 6)
		p.pass <- struct{}{}
		p.answers(t, "the last", 1)
		if err := <-p.ended; err != nil {
			t.Errorf("ends with %v", err)
		}
	})
}

func TestCallerGoneUnderPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := press(ctx, t)
		p.in <- ask(1, 9)
		p.pass <- struct{}{} // whose answer nobody takes
		p.expect(t, "4 are under way", 4)
		cancel()
		if err := <-p.ended; err == nil {
			t.Error("ends with no error")
		}
	})
}

// A caller who takes no answers must not hold what others could use.
func TestStalledStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := press(t.Context(), t)
		p.in <- ask(1, 4)
		for range 4 {
			p.pass <- struct{}{}
		}
		began := time.Now()
		if err := <-p.ended; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("ends with %v", err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 15*time.Second {
			t.Errorf("ends after %v", took)
		}
	})
}

// A stream on which nothing happens stays open.
func TestIdleStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := press(t.Context(), t)
		time.Sleep(24 * time.Hour)
		p.in <- ask(1, 1)
		p.pass <- struct{}{}
		p.answers(t, "after a day", 1)
		close(p.in)
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
	})
}
