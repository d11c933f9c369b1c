package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
)

// plenty is a rule that never denies.
var plenty = headgate.Rule{ID: "calls", By: []string{"client"}, Limit: headgate.PerSecond(1e9)}

// BenchmarkCall measures a call over loopback, with and without limits.
func BenchmarkCall(b *testing.B) {
	for _, bench := range []struct {
		name  string
		limit *grpclimit.Interceptors
	}{
		{"bare", nil},
		{"limited", limits(b, grpclimit.Options{}, plenty)},
		{"limited with metadata", limits(b, grpclimit.Options{Metadata: true}, plenty)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			c := serveTCP(b, bench.limit)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.echo(b.Context(), "hello"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMessage measures the round trip of a message in an open stream.
func BenchmarkMessage(b *testing.B) {
	for _, bench := range []struct {
		name  string
		limit *grpclimit.Interceptors
	}{
		{"bare", nil},
		{"limited", limits(b, grpclimit.Options{PerMessage: each}, plenty)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			stream := serveTCP(b, bench.limit).stream(b, b.Context(), talk)
			b.ReportAllocs()
			for b.Loop() {
				if err := exchange(stream, "hello"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// discardTransport discards metadata.
type discardTransport struct{ grpc.ServerTransportStream }

func (discardTransport) SetHeader(metadata.MD) error  { return nil }
func (discardTransport) SetTrailer(metadata.MD) error { return nil }

// BenchmarkUnary measures the interceptor alone.
func BenchmarkUnary(b *testing.B) {
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs(":authority", "api.example.com",
		"content-type", "application/grpc", "user-agent", "grpc-go/1.85.0", "x-api-key", "k"))
	ctx = grpc.NewContextWithServerTransportStream(ctx, discardTransport{})
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4711}})
	info := &grpc.UnaryServerInfo{FullMethod: echo}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	denying := plenty
	denying.Limit = headgate.PerDay(1)
	for _, bench := range []struct {
		name    string
		options grpclimit.Options
		rule    headgate.Rule
	}{
		{"allowed", grpclimit.Options{}, plenty},
		{"allowed with metadata", grpclimit.Options{Metadata: true}, plenty},
		{"denied", grpclimit.Options{}, denying},
	} {
		b.Run(bench.name, func(b *testing.B) {
			limit := limits(b, bench.options, bench.rule)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = limit.Unary(ctx, nil, info, handler)
			}
		})
	}
}
