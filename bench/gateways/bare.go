package main

import (
	"context"
	"net"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/bench/internal/bare"
)

// bareService is what a careful user would write by hand for one limit.
type bareService struct {
	rlsv3.UnimplementedRateLimitServiceServer
	redis rueidis.Client // nil answers at once
}

// ShouldRateLimit counts by the value of the first descriptor.
func (s *bareService) ShouldRateLimit(
	ctx context.Context, req *rlsv3.RateLimitRequest,
) (*rlsv3.RateLimitResponse, error) {
	code := rlsv3.RateLimitResponse_OK
	if s.redis != nil {
		answer, err := bare.Check(ctx, s.redis, req.GetDescriptors()[0].GetEntries()[0].GetValue()).AsIntSlice()
		if err != nil {
			return nil, err
		}
		if answer[0] == 0 {
			code = rlsv3.RateLimitResponse_OVER_LIMIT
		}
	}
	return &rlsv3.RateLimitResponse{
		OverallCode: code, Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{{Code: code}},
	}, nil
}

// serveBare serves until it is killed.
func serveBare(address, redis string) error {
	service := &bareService{}
	if redis != "" {
		client, err := bare.Open(redis)
		if err != nil {
			return err
		}
		defer client.Close()
		service.redis = client
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(server, service)
	return server.Serve(listener)
}
