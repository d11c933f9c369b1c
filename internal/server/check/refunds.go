package check

import (
	"context"
	"errors"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// MayRefund is nil for callers who may give units back that they have no receipt of, by the Authorization that they sent
// and the address that it came from. Its error says why others may not.
type MayRefund func(ctx context.Context, authorization, peer string) error

var errNoRefunds = errors.New("this server allows no refunds: set listen.allow_refunds in its config, or reserve and " +
	"commit instead")

// OrAll lets everybody if all is set. If it is not, a nil MayRefund lets nobody.
func (may MayRefund) OrAll(all bool) MayRefund {
	switch {
	case all:
		return func(context.Context, string, string) error { return nil }
	case may == nil:
		return func(context.Context, string, string) error { return errNoRefunds }
	}
	return may
}

// Call judges the caller of a gRPC method.
func (may MayRefund) Call(ctx context.Context) error {
	authorization, address := "", ""
	if sent := metadata.ValueFromIncomingContext(ctx, "authorization"); len(sent) > 0 {
		authorization = sent[0]
	}
	if from, ok := peer.FromContext(ctx); ok {
		address = from.Addr.String()
	}
	return may(ctx, authorization, address)
}
