package checkgrpc_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// TestBatch checks that the requests of a batch are decided independently and concurrently, and that the results are in order
// even if the first request is decided last.
func TestBatch(t *testing.T) {
	t.Parallel()
	const n = check.MaxBatch
	var others sync.WaitGroup
	others.Add(n - 3) // two requests are invalid
	var together sync.WaitGroup
	together.Add(check.BatchWorkers - 1) // the first request occupies one worker
	var begun atomic.Int64
	service := checkgrpc.New(&engine{limiter(t), func(_ context.Context, req headgate.Request) (headgate.Decision, error) {
		switch {
		case req.Rule == "none":
			return headgate.Decision{}, headgate.ErrUnknownRule
		case req.Cost == 0: // the first
			others.Wait()
			return echo(req), nil
		}
		if begun.Add(1) < check.BatchWorkers {
			together.Done()
			together.Wait() // all workers are busy at once
		}
		others.Done()
		return echo(req), nil
	}}, checkgrpc.Options{})
	batch := &checkv1.CheckBatchRequest{Requests: make([]*checkv1.CheckRequest, n)}
	for i := range batch.GetRequests() {
		batch.Requests[i] = &checkv1.CheckRequest{Cost: int64(i)}
	}
	batch.Requests[3].Cost = -1
	batch.Requests[5].Rule = "none"
	got, err := serve(t, service.Register).CheckBatch(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.GetAnswers()) != n {
		t.Fatalf("%d results", len(got.GetAnswers()))
	}
	for i, result := range got.GetAnswers() {
		code, text := codes.Code(result.GetCode()), result.GetMessage()
		switch i {
		case 3:
			if code != codes.InvalidArgument || !strings.Contains(text, "cost -1") || result.GetResponse() != nil {
				t.Error(result)
			}
		case 5:
			if code != codes.NotFound || !strings.Contains(text, `"none"`) || result.GetResponse() != nil {
				t.Error(result)
			}
		default:
			if code != codes.OK || result.GetResponse().GetLimits()[0].GetCost() != int64(i) {
				t.Errorf("result %d: %v", i, result)
			}
		}
	}
}

func TestEmptyBatch(t *testing.T) {
	t.Parallel()
	client := serve(t, checkgrpc.New(limiter(t), checkgrpc.Options{}).Register)
	got, err := client.CheckBatch(t.Context(), &checkv1.CheckBatchRequest{})
	if err != nil || len(got.GetAnswers()) != 0 {
		t.Error(got, err)
	}
}

func TestBatchTooLarge(t *testing.T) {
	t.Parallel()
	batch := &checkv1.CheckBatchRequest{Requests: make([]*checkv1.CheckRequest, check.MaxBatch+1)}
	for i := range batch.GetRequests() {
		batch.Requests[i] = &checkv1.CheckRequest{}
	}
	_, err := serve(t, checkgrpc.New(limiter(t), checkgrpc.Options{}).Register).CheckBatch(t.Context(), batch)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "send at most 1000") {
		t.Error(err)
	}
}

// TestBatchBound checks that the number of concurrent requests of a batch is bounded, and that all are decided even if the
// caller hangs up.
func TestBatchBound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var decided, running, maxRunning atomic.Int64
	service := checkgrpc.NewNarrow(&engine{limiter(t), func(context.Context, headgate.Request) (headgate.Decision, error) {
		for n := running.Add(1); ; {
			if m := maxRunning.Load(); n <= m || maxRunning.CompareAndSwap(m, n) {
				break
			}
		}
		if decided.Add(1) == 4 {
			cancel()
		}
		runtime.Gosched()
		running.Add(-1)
		return headgate.Decision{}, nil
	}}, 4)
	batch := &checkv1.CheckBatchRequest{}
	for range 100 {
		batch.Requests = append(batch.Requests, &checkv1.CheckRequest{})
	}
	_, err := serve(t, service.Register).CheckBatch(ctx, batch)
	for deadline := time.Now().Add(20 * time.Second); decided.Load() < 100 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if status.Code(err) != codes.Canceled || decided.Load() != 100 || maxRunning.Load() > 4 {
		t.Errorf("%v; %d decided of 100, up to %d at once", err, decided.Load(), maxRunning.Load())
	}
}

// TestBatchesWait checks that batches over the limit wait for others, but no longer than their callers.
func TestBatchesWait(t *testing.T) {
	t.Parallel()
	const atOnce = 32
	var first, second, third atomic.Int64
	pass := make(chan struct{})
	service := checkgrpc.NewNarrow(&engine{limiter(t), func(_ context.Context, req headgate.Request) (headgate.Decision, error) {
		switch req.Cost {
		case 1:
			first.Add(1)
			<-pass
		case 2:
			second.Add(1)
		case 3:
			third.Add(1)
		}
		return echo(req), nil
	}}, 1)
	client := serve(t, service.Register)
	full := func(cost int64) *checkv1.CheckBatchRequest {
		batch := &checkv1.CheckBatchRequest{Requests: make([]*checkv1.CheckRequest, check.MaxBatch)}
		for i := range batch.GetRequests() {
			batch.Requests[i] = &checkv1.CheckRequest{Cost: cost}
		}
		return batch
	}
	var calls sync.WaitGroup
	for range atOnce {
		calls.Go(func() {
			if _, err := client.CheckBatch(t.Context(), full(1)); err != nil {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(20 * time.Second); first.Load() < atOnce && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.CheckBatch(ctx, full(2)); status.Code(err) != codes.DeadlineExceeded || second.Load() != 0 {
		t.Errorf("over the limit: %v, %d decided", err, second.Load())
	}
	close(pass)
	calls.Wait()
	if _, err := client.CheckBatch(t.Context(), full(3)); err != nil || third.Load() != check.MaxBatch {
		t.Errorf("after the other batches: %v, %d decided", err, third.Load())
	}
}
