package client_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/memstore"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// callers is the number of concurrent callers.
const callers = 64

// BenchmarkCheck measures a check by a service, client and server together on loopback, and for comparison gRPC alone: a stream per
// caller that echoes messages, and a call that returns at once.
func BenchmarkCheck(b *testing.B) {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "search-by-key", By: []string{"api_key"}, Limit: headgate.Limit{Count: headgate.MaxCost, Window: time.Second},
	})
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	checkgrpc.New(limiter, checkgrpc.Options{}).Register(server)
	address := listen(b, server)
	attributes := headgate.Attributes{
		"api_key": "sha256:0123456789abcdefghijkl", "ip": "192.0.2.1", "method": "GET", "path": "/api/v1/search",
		"host": "api.example.com", "user_agent": "example/1.0",
	}
	req := headgate.Request{Attributes: attributes}
	b.Run("check", func(b *testing.B) {
		c := newClient(b, client.Options{Addresses: []string{address}, Timeout: 10 * time.Second})
		together(b, func() func() error {
			return func() error {
				d, err := c.Check(b.Context(), req)
				if err == nil && d.Path != headgate.PathStore {
					b.Errorf("decided by %s", d.Path)
				}
				return err
			}
		})
	})

	echo := grpc.NewServer()
	checkv1.RegisterCheckServiceServer(echo, bare{})
	conn, err := grpc.NewClient(listen(b, echo), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	calls := checkv1.NewCheckServiceClient(conn)
	b.Run("bare stream", func(b *testing.B) {
		message := &checkv1.CheckStreamRequest{Checks: []*checkv1.StreamCheck{{Id: 1}}}
		together(b, func() func() error {
			stream, err := calls.CheckStream(b.Context())
			return func() error {
				if err != nil {
					return err
				}
				if err := stream.Send(message); err != nil {
					return err
				}
				_, err = stream.Recv()
				return err
			}
		})
	})
	b.Run("bare call", func(b *testing.B) {
		message := &checkv1.CheckRequest{Rule: "search-by-key"}
		together(b, func() func() error {
			return func() error {
				_, err := calls.Check(b.Context(), message)
				return err
			}
		})
	})
	b.Run("in process", func(b *testing.B) {
		together(b, func() func() error {
			return func() error {
				_, err := limiter.Check(b.Context(), req)
				return err
			}
		})
	})
}

// bare is a service that responds without deciding.
type bare struct {
	checkv1.UnimplementedCheckServiceServer
}

func (bare) Check(context.Context, *checkv1.CheckRequest) (*checkv1.CheckResponse, error) {
	return &checkv1.CheckResponse{Allowed: true}, nil
}

func (bare) CheckStream(s grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse]) error {
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
		if err := s.Send(&checkv1.CheckStreamResponse{}); err != nil {
			return err
		}
	}
}

// together runs the calls of all callers until the benchmark ends.
func together(b *testing.B, caller func() func() error) {
	b.ReportAllocs()
	var left atomic.Int64
	var running sync.WaitGroup
	left.Store(int64(b.N))
	for range callers {
		call := caller()
		running.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
}
