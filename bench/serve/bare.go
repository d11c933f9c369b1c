package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/bench/internal/bare"
)

type bareServer struct{ redis rueidis.Client }

// service is written by hand: a name in, a number out. There is nothing that it could do less.
func (s *bareServer) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "bare.Limiter",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Echo", Handler: unary(func(context.Context, string) (int64, error) { return 1, nil })},
			{MethodName: "Check", Handler: unary(s.check)},
		},
		Streams: []grpc.StreamDesc{{
			StreamName: "Stream", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return s.stream(stream) },
		}},
	}
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

func (s *bareServer) check(ctx context.Context, key string) (int64, error) {
	answer, err := bare.Check(ctx, s.redis, key).ToArray()
	if err != nil {
		return 0, err
	}
	return answer[0].AsInt64()
}

// stream answers each message as soon as Redis has, in any order. The first eight characters of a message name it.
func (s *bareServer) stream(stream grpc.ServerStream) error {
	answers := make(chan int64, callers)
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
		running.Go(func() {
			id, _ := strconv.ParseInt(in.GetValue()[:8], 10, 64)
			if _, err := s.check(stream.Context(), in.GetValue()[8:]); err == nil {
				answers <- id
			}
		})
	}
}

// serveBare serves until it is killed.
func serveBare(redis, address string) error {
	client, err := bare.Open(redis)
	if err != nil {
		return err
	}
	defer client.Close()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	s := &bareServer{client}
	server.RegisterService(s.service(), s)
	return server.Serve(listener)
}
