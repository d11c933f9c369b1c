package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

// setHeader adds the limits of an allowed call to its header.
func setHeader(ctx context.Context, d *headgate.Decision) {
	if md := rateLimits(d); len(md) > 0 {
		_ = grpc.SetHeader(ctx, md) // fails only if the header is already sent or there is no transport
	}
}

// headers writes the fields of draft-ietf-httpapi-ratelimit-headers.
var headers = limitfields.Headers{Choice: limitfields.Choice{Draft: true}, MaxLimits: maxNamed}

// rateLimits returns the limits of a decision as metadata.
func rateLimits(d *headgate.Decision) metadata.MD {
	md := metadata.MD{}
	headers.Each(d, nil, func(field *limitfields.Field, value []byte) { md[field.Lower] = []string{string(value)} })
	return md
}
