package bare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/internal/testenv"
)

// Methods of the hand-written service: a string in, a number out, the smallest possible messages.
const (
	service      = "bare.Limiter"
	EchoMethod   = "/" + service + "/Echo"
	CheckMethod  = "/" + service + "/Check"
	streamMethod = "/" + service + "/Stream"
)

// server is a hand-written service for one limit.
type server struct {
	rlsv3.UnimplementedRateLimitServiceServer
	redis rueidis.Client // if nil, the server responds at once
}

// Environment variables of a process that runs the service.
const listenEnv, redisEnv = "HEADGATE_BARE_LISTEN", "HEADGATE_BARE_REDIS"

// Service is a running gRPC server.
type Service struct {
	*testenv.Program
	Address string
}

// Start starts the service as a new process of this program, which must call Main first. Without a Redis the service responds at
// once.
func Start(t testing.TB, redis string) *Service {
	t.Helper()
	self, err := os.Executable()
	testenv.NoError(t, err)
	address := testenv.FreeAddress(t)
	command := exec.CommandContext(t.Context(), self)
	command.Env = append(os.Environ(), listenEnv+"="+address, redisEnv+"="+redis)
	return &Service{testenv.Run(t, command, address), address}
}

// Main serves until it is killed, if Start started this process. Otherwise it returns.
func Main() {
	if address := os.Getenv(listenEnv); address != "" {
		fmt.Fprintln(os.Stderr, serve(address, os.Getenv(redisEnv)))
		os.Exit(2)
	}
}

// serve serves the hand-written service and Envoy's. Without a Redis both respond at once.
func serve(address, redis string) error {
	s := &server{}
	if redis != "" {
		client, err := open(redis)
		if err != nil {
			return err
		}
		defer client.Close()
		s.redis = client
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(g, s)
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Echo", Handler: unary(func(context.Context, string) (int64, error) { return 1, nil })},
			{MethodName: "Check", Handler: unary(s.check)},
		},
		Streams: []grpc.StreamDesc{{
			StreamName: "Stream", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return s.stream(stream) },
		}},
	}, s)
	return g.Serve(listener)
}

func unary(f func(context.Context, string) (int64, error)) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := &wrapperspb.StringValue{}
		if err := decode(in); err != nil {
			return nil, err
		}
		n, err := f(ctx, in.GetValue())
		return wrapperspb.Int64(n), err
	}
}

// check returns 1 if the key is allowed.
func (s *server) check(ctx context.Context, key string) (int64, error) {
	if s.redis == nil {
		return 1, nil
	}
	reply, err := Check(ctx, s.redis, key).ToArray()
	if err != nil {
		return 0, err
	}
	return reply[0].AsInt64()
}

// ShouldRateLimit counts by the value of the first descriptor.
func (s *server) ShouldRateLimit(ctx context.Context, req *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	code := rlsv3.RateLimitResponse_OK
	if allowed, err := s.check(ctx, req.GetDescriptors()[0].GetEntries()[0].GetValue()); err != nil {
		return nil, err
	} else if allowed == 0 {
		code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return &rlsv3.RateLimitResponse{
		OverallCode: code, Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{{Code: code}},
	}, nil
}

// stream responds to each message as soon as Redis does, in any order. The first eight characters of a message are its ID.
func (s *server) stream(stream grpc.ServerStream) error {
	done := make(chan int64, 64)
	var running sync.WaitGroup
	var sent sync.WaitGroup
	sent.Go(func() {
		for id := range done {
			_ = stream.SendMsg(wrapperspb.Int64(id)) // the receive loop notices a closed stream
		}
	})
	defer sent.Wait()
	defer close(done)
	defer running.Wait()
	for {
		in := &wrapperspb.StringValue{}
		if err := stream.RecvMsg(in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		id, err := strconv.ParseInt(in.GetValue()[:8], 10, 64)
		if err != nil {
			return err
		}
		if s.redis == nil {
			done <- id
			continue
		}
		running.Go(func() {
			if _, err := s.check(stream.Context(), in.GetValue()[8:]); err == nil {
				done <- id
			}
		})
	}
}
