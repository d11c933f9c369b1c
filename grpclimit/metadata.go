package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelimitdraft"
)

func setHeader(ctx context.Context, d *headgate.Decision) {
	if md := rateLimits(d); len(md) > 0 {
		_ = grpc.SetHeader(ctx, md) // fails only if the header is sent, or nobody is there
	}
}

// rateLimits returns the fields of draft-ietf-httpapi-ratelimit-headers, of the limits that clients may see and in any case of
// the one that denies. A limit that the store did not decide has a policy only: what is left is not known.
func rateLimits(d *headgate.Decision) metadata.MD {
	policies, limits := make([]byte, 0, 64), make([]byte, 0, 64)
	named, hidden, denied := 0, limitfields.Hidden(d), d.Refused()
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Exposed && l != hidden || named >= maxNamed && l != denied {
			continue
		}
		named++
		policies = limitfields.AppendPolicy(separate(policies), ratelimitdraft.Draft11, l)
		if limitfields.Decided(l) {
			limits = limitfields.AppendState(separate(limits), ratelimitdraft.Draft11, l)
		}
	}
	md := metadata.MD{}
	if len(policies) > 0 {
		md["ratelimit-policy"] = []string{string(policies)}
	}
	if len(limits) > 0 {
		md["ratelimit"] = []string{string(limits)}
	}
	return md
}

// separate ends an entry before the next.
func separate(text []byte) []byte {
	if len(text) > 0 {
		text = append(text, ", "...)
	}
	return text
}
