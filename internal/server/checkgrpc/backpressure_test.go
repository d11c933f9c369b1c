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

// wire is the server side of a stream without a network, so that synctest can detect when all goroutines are blocked.
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

// pressed is a stream whose checks wait on a channel.
type pressed struct {
	wire
	started atomic.Int64
	proceed chan struct{}
	ended   chan error
}

// press starts a stream with at most 4 checks in flight and receives its first message.
func press(ctx context.Context, t *testing.T) *pressed {
	p := &pressed{
		wire: wire{
			ctx: ctx,
			in:  make(chan *checkv1.CheckStreamRequest), out: make(chan *checkv1.CheckStreamResponse),
		},
		proceed: make(chan struct{}), ended: make(chan error, 1),
	}
	check := func(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
		p.started.Add(1)
		select {
		case <-p.proceed:
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

// expect waits until all goroutines are blocked, and compares the number of started checks.
func (p *pressed) expect(t *testing.T, when string, started int64) {
	t.Helper()
	synctest.Wait()
	if got := p.started.Load(); got != started {
		t.Errorf("%s: %d checks started, want %d", when, got, started)
	}
}

// results receives a message with n results.
func (p *pressed) results(t *testing.T, when string, n int) {
	t.Helper()
	if message := <-p.out; len(message.GetAnswers()) != n {
		t.Errorf("%s: %v, want %d results", when, message, n)
	}
}

func TestBackPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := press(t.Context(), t)
		p.in <- checks(1, 3)
		p.expect(t, "3 checks", 3)
		p.in <- checks(4, 3)
		p.expect(t, "3 more", 4)
		select {
		case p.in <- checks(7, 1):
			t.Error("the stream was read")
		default:
		}
		p.proceed <- struct{}{}
		p.results(t, "one decided", 1)
		p.expect(t, "one result received", 5)

		// The caller reads no results: one message is being sent, the others wait.
		p.proceed <- struct{}{}
		p.expect(t, "another decided", 5)
		for range 3 {
			p.proceed <- struct{}{}
		}
		p.expect(t, "all decided", 5)
		p.results(t, "the first message", 1)
		p.expect(t, "one result received", 6)
		p.results(t, "the waiting results in one message", 3)

		close(p.in)
		p.expect(t, "closed by the caller", 6)
		p.proceed <- struct{}{}
		p.results(t, "the last", 1)
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
		p.in <- checks(1, 9)
		p.proceed <- struct{}{} // its result is not received
		p.expect(t, "4 in flight", 4)
		cancel()
		if err := <-p.ended; err == nil {
			t.Error("ends with no error")
		}
	})
}

// TestStalledStream checks that a stream whose caller does not read results is ended.
func TestStalledStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := press(t.Context(), t)
		p.in <- checks(1, 4)
		for range 4 {
			p.proceed <- struct{}{}
		}
		began := time.Now()
		if err := <-p.ended; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("ends with %v", err)
		}
		if elapsed := time.Since(began); elapsed < 10*time.Second || elapsed > 15*time.Second {
			t.Errorf("ends after %v", elapsed)
		}
	})
}

// TestIdleStream checks that an idle stream stays open.
func TestIdleStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := press(t.Context(), t)
		time.Sleep(24 * time.Hour)
		p.in <- checks(1, 1)
		p.proceed <- struct{}{}
		p.results(t, "after a day", 1)
		close(p.in)
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
	})
}
