package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/memstore"
)

func Example() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID:    "health-by-ip",
		Match: headgate.Match{Path: "/grpc.health.v1.Health/*"},
		By:    []string{"ip"},
		Limit: headgate.PerHour(2),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	limit, err := grpclimit.New(limiter, grpclimit.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	defer server.Stop()
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go server.Serve(listener) //nolint:errcheck // A failure shows in the client's error.

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	for range 3 {
		response, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		if err == nil {
			fmt.Println(response.GetStatus())
			continue
		}
		fmt.Println(status.Code(err))
		for _, detail := range status.Convert(err).Details() {
			switch detail := detail.(type) {
			case *errdetails.RetryInfo:
				fmt.Println("wait half an hour or a little more:", detail.GetRetryDelay().AsDuration().Minutes() > 29)
			case *errdetails.QuotaFailure:
				fmt.Println(detail.GetViolations()[0].GetSubject(), detail.GetViolations()[0].GetDescription())
			}
		}
	}
	// Output:
	// SERVING
	// SERVING
	// ResourceExhausted
	// wait half an hour or a little more: true
	// health-by-ip allows 2/hour
}

// Use an Identity behind a proxy or with API keys, and Attributes for the result of an authenticating interceptor.
func ExampleNew_identity() {
	type userKey struct{}
	authenticate := func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		return handler(context.WithValue(ctx, userKey{}, "ada"), req)
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "calls-by-user", By: []string{"user"}, Limit: headgate.PerMinute(100),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	who, err := identity.New(identity.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		APIKey:         identity.APIKey{Header: "X-API-Key"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer who.Close()
	limit, err := grpclimit.New(limiter, grpclimit.Options{
		Identity: who,
		Attributes: func(ctx context.Context, attributes headgate.Attributes) {
			if user, ok := ctx.Value(userKey{}).(string); ok {
				attributes["user"] = user
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, limit.Unary))
	// Output:
}

// One rule limits the conversations that a user starts, another their messages. The second is a leaky bucket: it delays messages
// by up to five seconds instead of ending the stream.
func ExampleNew_messages() {
	talk := func(message headgate.Pattern) headgate.Match {
		return headgate.Match{
			Path:       "/chat.Chat/Talk",
			Attributes: map[string]headgate.Pattern{"descriptor.message": message},
		}
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{
			ID: "conversations", Match: talk(headgate.IsAbsent()), By: []string{"user"}, Limit: headgate.PerMinute(6),
		},
		headgate.Rule{
			ID: "messages", Match: talk(headgate.IsPresent()), By: []string{"user"},
			Limit:    headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 10, Window: time.Second},
			MaxDelay: 5 * time.Second,
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	limit, err := grpclimit.New(limiter, grpclimit.Options{
		PerMessage: func(fullMethod string) bool { return fullMethod == "/chat.Chat/Talk" },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	grpc.NewServer(grpc.StreamInterceptor(limit.Stream))
	// Output:
}

// The cost of a call depends on its message. Health checks are free.
func ExampleNew_cost() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "rows-by-user", By: []string{"user"}, Limit: headgate.PerMinute(10_000),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	limit, err := grpclimit.New(limiter, grpclimit.Options{
		Cost: func(_ string, message any) int64 {
			switch message := message.(type) {
			case interface{ GetPageSize() int32 }:
				return int64(max(message.GetPageSize(), 1))
			case *healthpb.HealthCheckRequest:
				return 0
			}
			return 1
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	// Output:
}
