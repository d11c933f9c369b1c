package check

import (
	"context"
	"errors"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// MayRefund returns nil for callers who may give units back that they have no receipt of, by the Authorization that they sent
// and the address that it came from. Its error says why others may not. A nil MayRefund lets nobody.
type MayRefund func(ctx context.Context, authorization, peer string) error

// AllRefund is a MayRefund that lets all callers.
func AllRefund(context.Context, string, string) error { return nil }

var errNoRefunds = errors.New("this server allows no refunds: set listen.allow_refunds in its config, or reserve and " +
	"commit instead")

// Judge judges a caller.
func (may MayRefund) Judge(ctx context.Context, authorization, peer string) error {
	if may == nil {
		return errNoRefunds
	}
	return may(ctx, authorization, peer)
}

// JudgeCall judges the caller of a gRPC method.
func (may MayRefund) JudgeCall(ctx context.Context) error {
	authorization, address := "", ""
	if sent := metadata.ValueFromIncomingContext(ctx, "authorization"); len(sent) > 0 {
		authorization = sent[0]
	}
	if from, ok := peer.FromContext(ctx); ok {
		address = from.Addr.String()
	}
	return may.Judge(ctx, authorization, address)
}
