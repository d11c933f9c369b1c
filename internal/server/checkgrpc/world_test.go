package checkgrpc_test

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/memstore"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	serverSide = grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse]
	clientSide = grpc.BidiStreamingClient[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse]
)

// serve starts a server on a free port, and returns a client of it.
func serve(t testing.TB, register func(grpc.ServiceRegistrar)) checkv1.CheckServiceClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	register(server)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return checkv1.NewCheckServiceClient(conn)
}

func open(t testing.TB, client checkv1.CheckServiceClient) clientSide {
	t.Helper()
	stream, err := client.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// limiter returns a limiter with counters in memory.
func limiter(t testing.TB, rules ...headgate.Rule) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(memstore.New(memstore.Options{}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// engine is a limiter with another Check.
type engine struct {
	*headgate.Limiter
	check func(ctx context.Context, req headgate.Request) (headgate.Decision, error)
}

func (e *engine) Check(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return e.check(ctx, req)
}

// checks returns a message with n checks whose ids begin with first; each has its id as the cost.
func checks(first, n int) *checkv1.CheckStreamRequest {
	message := &checkv1.CheckStreamRequest{}
	for id := first; id < first+n; id++ {
		message.Checks = append(message.Checks, &checkv1.StreamCheck{
			Id: uint64(id), Request: &checkv1.CheckRequest{Cost: int64(id), Attributes: map[string]string{"api_key": "k"}},
		})
	}
	return message
}

// echo returns a decision that contains the cost of the request.
func echo(req headgate.Request) headgate.Decision {
	limits := []headgate.LimitDecision{{Rule: "r", Cost: req.Cost}}
	return headgate.Decision{Allowed: true, Path: headgate.PathStore, Limits: limits}
}
