package callers

import (
	"context"
	"crypto/sha256"
	"net"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

func BenchmarkGRPC(b *testing.B) {
	token := "hgt_0123456789012345678901234567890123456789012"
	known := map[[sha256.Size]byte]bool{sha256.Sum256([]byte(token)): true}
	g := New(Options{Token: func(t string) bool { return known[sha256.Sum256([]byte(t))] }})
	gate := g.GRPC(func(ctx context.Context, _ *tap.Info) (context.Context, error) { return ctx, nil })
	call := &tap.Info{FullMethodName: "/headgate.check.v1.CheckService/Check", Header: metadata.MD{metadataKey: {token}}}
	ctx := peer.NewContext(b.Context(), &peer.Peer{Addr: &net.TCPAddr{}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gate(ctx, call); err != nil {
			b.Fatal(err)
		}
	}
}
