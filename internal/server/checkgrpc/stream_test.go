package checkgrpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

func receive(t *testing.T, stream clientSide) *checkv1.CheckStreamResponse {
	t.Helper()
	message, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func send(t *testing.T, stream clientSide, message *checkv1.CheckStreamRequest) {
	t.Helper()
	if err := stream.Send(message); err != nil {
		t.Fatal(err)
	}
}

// TestStreamOutOfOrder checks that thousands of checks are in flight at once, and that the first result may be the last,
// after the caller has closed its side.
func TestStreamOutOfOrder(t *testing.T) {
	t.Parallel()
	const n = 3_000
	var all sync.WaitGroup
	all.Add(n)
	others := make(chan struct{})
	check := func(_ context.Context, req headgate.Request) (headgate.Decision, error) {
		all.Done()
		all.Wait()
		if req.Cost == 1 {
			<-others
		}
		return echo(req), nil
	}
	service := checkgrpc.NewNarrow(&engine{limiter(t), check}, n)
	stream := open(t, serve(t, service.Register))
	for first := 1; first <= n; first += 100 {
		send(t, stream, checks(first, 100))
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range message.GetAnswers() {
			id := result.GetId()
			if cost := result.GetResponse().GetLimits()[0].GetCost(); uint64(cost) != id || seen[id] {
				t.Fatalf("result %d is for check %d; duplicate: %v", id, cost, seen[id])
			}
			if seen[id] = true; len(seen) == n-1 {
				close(others)
			}
		}
	}
	if len(seen) != n {
		t.Errorf("%d results for %d checks", len(seen), n)
	}
}

func TestStreamErrors(t *testing.T) {
	t.Parallel()
	service := checkgrpc.New(&engine{limiter(t), func(_ context.Context, req headgate.Request) (headgate.Decision, error) {
		switch req.Rule {
		case "none":
			return headgate.Decision{}, headgate.ErrUnknownRule
		case "broken":
			return headgate.Decision{}, errors.New("out of order")
		}
		return echo(req), nil
	}}, checkgrpc.Options{Log: quiet})
	stream := open(t, serve(t, service.Register))
	receive(t, stream)
	for _, test := range []struct {
		request *checkv1.CheckRequest
		code    codes.Code
		message string
	}{
		{&checkv1.CheckRequest{Cost: -1}, codes.InvalidArgument, "cost -1"},
		{&checkv1.CheckRequest{Rule: "none"}, codes.NotFound, `rule "none"`},
		{&checkv1.CheckRequest{Rule: "broken"}, codes.Internal, "out of order"},
		{&checkv1.CheckRequest{}, codes.OK, ""},
		{nil, codes.OK, ""},
	} {
		send(t, stream, &checkv1.CheckStreamRequest{Checks: []*checkv1.StreamCheck{{Id: 7, Request: test.request}}})
		result := receive(t, stream).GetAnswers()[0]
		if result.GetId() != 7 || (result.GetResponse() != nil) != (test.code == codes.OK) ||
			codes.Code(result.GetCode()) != test.code || !strings.Contains(result.GetMessage(), test.message) {
			t.Errorf("%v: %v", test.request, result)
		}
	}
}

func TestStreamReportsRules(t *testing.T) {
	t.Parallel()
	rule := plenty
	first, err := headgate.Compile(rule)
	if err != nil {
		t.Fatal(err)
	}
	again, err := headgate.Compile(rule)
	if err != nil {
		t.Fatal(err)
	}
	rule.By = []string{"tenant"}
	second, err := headgate.Compile(rule)
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t)
	l.SetRules(first)
	stream := open(t, serve(t, checkgrpc.New(l, checkgrpc.Options{}).Register))
	info := receive(t, stream).GetRules() // before the first check
	if info.GetVersion() != first.Version() || strings.Join(info.GetAttributes(), " ") != "api_key" {
		t.Errorf("first rules: %v", info)
	}
	l.SetRules(again)
	send(t, stream, checks(1, 1))
	if message := receive(t, stream); message.GetRules() != nil || len(message.GetAnswers()) != 1 {
		t.Errorf("same rules: %v", message)
	}
	l.SetRules(second)
	send(t, stream, checks(1, 1))
	info = receive(t, stream).GetRules()
	if info.GetVersion() != second.Version() || strings.Join(info.GetAttributes(), " ") != "tenant" {
		t.Errorf("other rules: %v", info)
	}
	send(t, stream, checks(1, 1))
	if message := receive(t, stream); message.GetRules() != nil {
		t.Errorf("reported twice: %v", message)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	service := checkgrpc.New(limiter(t, plenty), checkgrpc.Options{})
	client := serve(t, service.Register)
	idle := open(t, client)
	receive(t, idle)
	service.Drain()
	service.Drain()
	if message := receive(t, idle); !message.GetDraining() {
		t.Errorf("a stream without checks: %v", message)
	}
	late := open(t, client)
	if message := receive(t, late); !message.GetDraining() || message.GetRules() == nil {
		t.Errorf("a new stream is not notified in its first message: %v", message)
	}
	for name, stream := range map[string]clientSide{"idle": idle, "late": late} {
		send(t, stream, checks(1, 1))
		if message := receive(t, stream); len(message.GetAnswers()) != 1 || message.GetDraining() {
			t.Errorf("%s: %v", name, message)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: ends with %v", name, err)
		}
	}
}

// TestStreamCallerGone checks that all checks of a message are decided even if the caller hangs up, and that the goroutines
// of the stream end, which TestMain verifies.
func TestStreamCallerGone(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}, 20), make(chan error, 20)
	service := checkgrpc.NewNarrow(&engine{limiter(t), func(ctx context.Context, _ headgate.Request) (headgate.Decision, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return headgate.Decision{}, ctx.Err()
	}}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := serve(t, service.Register).CheckStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send(t, stream, checks(1, 20)) // more than the limit in flight
	for range 10 {
		<-started
	}
	cancel()
	for range 20 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}
