package checkgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"testing"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// plenty is a rule that never denies.
var plenty = headgate.Rule{ID: "calls", By: []string{"api_key"}, Limit: headgate.PerSecond(1e6)}

// yielding is an engine that returns a fixed decision after it yielded to other goroutines.
type yielding struct {
	check.Engine
	decision headgate.Decision
}

func (y *yielding) Check(context.Context, headgate.Request) (headgate.Decision, error) {
	runtime.Gosched()
	return y.decision, nil
}

// bare responds to each message of a stream with fixed decisions.
type bare struct {
	checkv1.UnimplementedCheckServiceServer
	response *checkv1.CheckResponse
}

func (b *bare) register(r grpc.ServiceRegistrar) { checkv1.RegisterCheckServiceServer(r, b) }

func (b *bare) CheckStream(caller serverSide) error {
	for {
		message, err := caller.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		results := make([]*checkv1.StreamAnswer, len(message.GetChecks()))
		for i, check := range message.GetChecks() {
			results[i] = &checkv1.StreamAnswer{Id: check.GetId(), Response: b.response}
		}
		if err := caller.Send(&checkv1.CheckStreamResponse{Answers: results}); err != nil {
			return err
		}
	}
}

// BenchmarkStream measures one check of a stream with 512 in flight over loopback, including the cost of the caller.
func BenchmarkStream(b *testing.B) {
	l := limiter(b, plenty)
	decision, err := l.Check(b.Context(), headgate.Request{Attributes: headgate.Attributes{"api_key": "k"}})
	if err != nil {
		b.Fatal(err)
	}
	response, err := checkgrpc.New(l, checkgrpc.Options{}).Check(b.Context(), &checkv1.CheckRequest{
		Attributes: map[string]string{"api_key": "k"},
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct {
		name     string
		register func(grpc.ServiceRegistrar)
	}{
		{"bare", (&bare{response: response}).register},
		{"yielding", checkgrpc.New(&yielding{l, decision}, checkgrpc.Options{}).Register},
		{"memstore", checkgrpc.New(l, checkgrpc.Options{}).Register},
	} {
		for _, together := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/%d together", bench.name, together), func(b *testing.B) {
				stream := open(b, serve(b, bench.register))
				b.ReportAllocs()
				pump(b, stream, together)
			})
		}
	}
}

// pump makes b.N checks.
func pump(b *testing.B, stream clientSide, together int) {
	const inFlight = 512
	free := make(chan struct{}, inFlight) // one element for each message that may be sent
	for range inFlight / together {
		free <- struct{}{}
	}
	messages := make([]*checkv1.CheckStreamRequest, 64)
	for m := range messages {
		messages[m] = &checkv1.CheckStreamRequest{Checks: make([]*checkv1.StreamCheck, together)}
		for i := range together {
			messages[m].Checks[i] = &checkv1.StreamCheck{Id: uint64(i), Request: &checkv1.CheckRequest{
				Attributes: map[string]string{
					"api_key": "key-" + strconv.Itoa(m*together+i), "ip": "192.0.2.1", "method": "GET", "path": "/v1/search",
				},
			}}
		}
	}
	b.ResetTimer()
	failed := make(chan error, 1)
	go func() {
		for n := 0; n*together < b.N; n++ {
			<-free
			if err := stream.Send(messages[n%len(messages)]); err != nil {
				failed <- err
				return
			}
		}
		failed <- stream.CloseSend()
	}()
	for received := 0; ; {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		before := received / together
		received += len(message.GetAnswers())
		for range received/together - before {
			free <- struct{}{}
		}
	}
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCheck measures a unary call.
func BenchmarkCheck(b *testing.B) {
	client := serve(b, checkgrpc.New(limiter(b, plenty), checkgrpc.Options{}).Register)
	req := &checkv1.CheckRequest{Attributes: map[string]string{"api_key": "k"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.Check(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
