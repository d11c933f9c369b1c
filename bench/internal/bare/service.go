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

// Methods of the service that is written by hand: a name in, a number out. There is nothing that it could do less.
const (
	service      = "bare.Limiter"
	EchoMethod   = "/" + service + "/Echo"
	CheckMethod  = "/" + service + "/Check"
	streamMethod = "/" + service + "/Stream"
)

// server is what a careful user would write by hand for one limit.
type server struct {
	rlsv3.UnimplementedRateLimitServiceServer
	redis rueidis.Client // nil answers at once
}

// The environment of a process that is the service.
const listenAt, redisAt = "HEADGATE_BARE_LISTEN", "HEADGATE_BARE_REDIS"

// Service is a program that is asked by gRPC.
type Service struct {
	*testenv.Program
	Address string
}

// Start starts the service as a process of its own, of this program, which calls Main first. Without a Redis it answers at once.
func Start(t testing.TB, redis string) *Service {
	t.Helper()
	self, err := os.Executable()
	testenv.NoError(t, err)
	address := testenv.FreeAddress(t)
	command := exec.CommandContext(t.Context(), self)
	command.Env = append(os.Environ(), listenAt+"="+address, redisAt+"="+redis)
	return &Service{testenv.Run(t, command, address), address}
}

// Main serves until it is killed, if Start has started this process.
func Main() {
	if address := os.Getenv(listenAt); address != "" {
		fmt.Fprintln(os.Stderr, serve(address, os.Getenv(redisAt)))
		os.Exit(2)
	}
}

// serve is that service and Envoy's. Without a Redis both answer at once.
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

// check is 1 if the key may pass.
func (s *server) check(ctx context.Context, key string) (int64, error) {
	if s.redis == nil {
		return 1, nil
	}
	answer, err := Check(ctx, s.redis, key).ToArray()
	if err != nil {
		return 0, err
	}
	return answer[0].AsInt64()
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

// stream answers each message as soon as Redis has, in any order. The first eight characters of a message name it.
func (s *server) stream(stream grpc.ServerStream) error {
	answers := make(chan int64, 64)
	var running sync.WaitGroup
	var sent sync.WaitGroup
	sent.Go(func() {
		for id := range answers {
			_ = stream.SendMsg(wrapperspb.Int64(id)) // who is gone is found out by the reader
		}
	})
	defer sent.Wait()
	defer close(answers)
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
			answers <- id
			continue
		}
		running.Go(func() {
			if _, err := s.check(stream.Context(), in.GetValue()[8:]); err == nil {
				answers <- id
			}
		})
	}
}
