package grpclimit

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

const (
	domain            = "headgate"
	reasonExceeded    = "RATE_LIMIT_EXCEEDED"
	reasonUnavailable = "RATE_LIMIT_UNAVAILABLE"

	// maxNamed is how many limits are named to a client. Details and metadata are headers on the wire, for which clients
	// and proxies have a few kilobytes.
	maxNamed = 16
	// maxPushback is the longest wait that a client of gRPC is asked to sit out with the call open.
	maxPushback = time.Minute
	// Bounds of what chance adds to a wait: a tenth of a short one spreads nobody, of a month's it is days.
	minSpread = 100 * time.Millisecond
	maxSpread = 5 * time.Minute
)

// refusal is what a client is told.
type refusal struct {
	// wait is until the call can pass: at least the decision's; 0 if it is not known.
	wait time.Duration
	// worst is the limit that denies the call for the longest time; nil if the client knows none.
	worst *headgate.LimitDecision
	// violations are of the limits that deny the call, those of rules that are not exposed without a name.
	violations []*errdetails.QuotaFailure_Violation
	undecided  bool
}

// refuse tells the client, and whoever wants to know besides.
//
// All metadata go into the trailer. With nothing in the header the answer is what gRPC calls Trailers-Only, and that is
// the only one after which its clients retry.
func (i *Interceptors) refuse(ctx context.Context, method string, d headgate.Decision) *status.Status {
	if i.options.OnRefused != nil {
		i.options.OnRefused(ctx, method, &d)
	}
	r := newRefusal(&d)
	trailer := metadata.MD{}
	if i.options.Metadata {
		trailer = rateLimits(&d)
		if r.wait > 0 {
			trailer.Set("retry-after", strconv.FormatInt(limitfields.Up(r.wait, time.Second), 10))
		}
	}
	switch {
	case r.wait == headgate.Never || r.wait > maxPushback:
		trailer.Set("grpc-retry-pushback-ms", "-1")
	case r.wait > 0:
		trailer.Set("grpc-retry-pushback-ms", strconv.FormatInt(limitfields.Up(r.wait, time.Millisecond), 10))
	}
	_ = grpc.SetTrailer(ctx, trailer) // fails only without a transport, where there is nobody to tell
	return r.status()
}

func newRefusal(d *headgate.Decision) refusal {
	r := refusal{wait: d.RetryAfter, undecided: limitfields.Undecided(d)}
	switch {
	case r.undecided:
		r.wait = 0 // nobody knows when the store is back
	case r.wait > 0:
		r.wait = jitter(r.wait)
	}
	hidden := limitfields.Hidden(d)
	for n := range d.Limits {
		l := &d.Limits[n]
		if !l.Refuses() || !l.Exposed && l != hidden {
			continue
		}
		if len(r.violations) < maxNamed {
			r.violations = append(r.violations, &errdetails.QuotaFailure_Violation{
				Subject: limitfields.PublicName(l), Description: limitfields.Reason(l, "call"),
			})
		}
	}
	if worst := d.Refused(); worst != nil && (worst.Exposed || worst == hidden) {
		r.worst = worst
	}
	return r
}

func (r refusal) status() *status.Status {
	code, text := codes.ResourceExhausted, "rate limit exceeded"
	info := &errdetails.ErrorInfo{Reason: reasonExceeded, Domain: domain}
	if r.undecided {
		code, text, info.Reason = codes.Unavailable, "rate limits cannot be checked", reasonUnavailable
	}
	switch {
	case r.worst == nil:
	case r.worst.Exposed:
		text += ": " + limitfields.Name(r.worst) + " " + limitfields.Reason(r.worst, "call")
		info.Metadata = map[string]string{"rule": r.worst.Rule}
	default:
		info.Metadata = map[string]string{"rule": limitfields.HiddenName}
	}
	details := []protoadapt.MessageV1{info}
	if r.wait > 0 {
		text += "; try again in " + (time.Duration(limitfields.Up(r.wait, time.Millisecond)) * time.Millisecond).String()
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.wait)})
	}
	if len(r.violations) > 0 && !r.undecided {
		details = append(details, &errdetails.QuotaFailure{Violations: r.violations})
	}
	return detailed(code, text, details...)
}

func detailed(code codes.Code, text string, details ...protoadapt.MessageV1) *status.Status {
	plain := status.New(code, text)
	if full, err := plain.WithDetails(details...); err == nil {
		return full
	}
	return plain // a name that is not UTF-8 must not turn a refusal into something else
}

// jitter adds to a wait, so that those who were refused together do not come back together. It never takes away.
func jitter(wait time.Duration) time.Duration {
	spread := min(max(wait/10, min(wait, minSpread)), maxSpread)
	return wait + rand.N(spread+1) //nolint:gosec // Nothing is gained by guessing it.
}
