package check

import (
	"context"
	"errors"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// MayRefund returns nil if a caller may refund units without a receipt, given its Authorization header and address. Otherwise
// the error contains the reason. A nil MayRefund allows no caller.
type MayRefund func(ctx context.Context, authorization, peer string) error

// AllRefund implements MayRefund. It allows all callers.
func AllRefund(context.Context, string, string) error { return nil }

var errNoRefunds = errors.New("this server allows no refunds: set listen.allow_refunds in its config, or reserve and " +
	"commit instead")

// Authorize returns nil if the caller may refund units, and otherwise the reason.
func (may MayRefund) Authorize(ctx context.Context, authorization, peer string) error {
	if may == nil {
		return errNoRefunds
	}
	return may(ctx, authorization, peer)
}

// AuthorizeCall authorizes the caller of a gRPC method.
func (may MayRefund) AuthorizeCall(ctx context.Context) error {
	authorization, address := "", ""
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		authorization = values[0]
	}
	if from, ok := peer.FromContext(ctx); ok {
		address = from.Addr.String()
	}
	return may.Authorize(ctx, authorization, address)
}
