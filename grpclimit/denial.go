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

	// maxNamed caps the number of limits reported to a client. Details and metadata are sent as headers, which clients and
	// proxies limit to a few kilobytes.
	maxNamed = 16
	// maxPushback is the longest wait for which a gRPC client is asked to retry automatically, with the call open.
	maxPushback = time.Minute
	// minSpread and maxSpread bound the jitter: a tenth of a short wait does not spread clients, and a tenth of a month is days.
	minSpread = 100 * time.Millisecond
	maxSpread = 5 * time.Minute
)

// deny returns the status of a denied call, calls OnDenied and sets the trailer.
//
// All metadata go into the trailer. Without a header the response is Trailers-Only in terms of gRPC, the only kind of response
// after which its clients retry.
func (i *Interceptors) deny(ctx context.Context, method string, d headgate.Decision) *status.Status {
	if i.options.OnDenied != nil {
		i.options.OnDenied(ctx, method, &d)
	}
	wait := waitOf(&d)
	trailer := metadata.MD{}
	if i.options.Metadata {
		trailer = rateLimits(&d)
		if wait > 0 {
			trailer.Set("retry-after", strconv.FormatInt(limitfields.RoundUp(wait, time.Second), 10))
		}
	}
	switch {
	case wait == headgate.Never || wait > maxPushback:
		trailer.Set("grpc-retry-pushback-ms", "-1")
	case wait > 0:
		trailer.Set("grpc-retry-pushback-ms", strconv.FormatInt(limitfields.RoundUp(wait, time.Millisecond), 10))
	}
	_ = grpc.SetTrailer(ctx, trailer) // fails only without a transport
	return statusOf(&d, wait)
}

// waitOf returns the wait of a denied call with jitter, at least the decision's wait. It returns 0 if the wait is unknown.
func waitOf(d *headgate.Decision) time.Duration {
	switch {
	case limitfields.Undecided(d), d.RetryAfter == headgate.Unknown:
		return 0 // unknown: it depends on when the store recovers or units are released
	case d.RetryAfter > 0:
		return jitter(d.RetryAfter)
	}
	return d.RetryAfter
}

// statusOf returns the status of a denial. Limits of rules that are not exposed are not named.
func statusOf(d *headgate.Decision, wait time.Duration) *status.Status {
	code, text, undecided := codes.ResourceExhausted, "rate limit exceeded", limitfields.Undecided(d)
	info := &errdetails.ErrorInfo{Reason: reasonExceeded, Domain: domain}
	if undecided {
		code, text, info.Reason = codes.Unavailable, "rate limit unavailable", reasonUnavailable
	}
	hidden := limitfields.Hidden(d)
	switch worst := d.DeniedBy(); {
	case worst == nil:
	case worst.Exposed:
		text += ": " + limitfields.Name(worst) + " " + limitfields.Reason(worst, "call")
		info.Metadata = map[string]string{"rule": worst.Rule}
	case worst == hidden:
		info.Metadata = map[string]string{"rule": limitfields.HiddenName}
	}
	details := []protoadapt.MessageV1{info}
	if wait > 0 {
		text += "; retry in " + (time.Duration(limitfields.RoundUp(wait, time.Millisecond)) * time.Millisecond).String()
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	var violations []*errdetails.QuotaFailure_Violation
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Denies() && (l.Exposed || l == hidden) && len(violations) < maxNamed {
			violations = append(violations, &errdetails.QuotaFailure_Violation{
				Subject: limitfields.PublicName(l), Description: limitfields.Reason(l, "call"),
			})
		}
	}
	if len(violations) > 0 && !undecided {
		details = append(details, &errdetails.QuotaFailure{Violations: violations})
	}
	return detailed(code, text, details...)
}

// detailed returns a status with details, or without them if they cannot be encoded.
func detailed(code codes.Code, text string, details ...protoadapt.MessageV1) *status.Status {
	plain := status.New(code, text)
	if full, err := plain.WithDetails(details...); err == nil {
		return full
	}
	return plain // a name that is not UTF-8 must not change the code of a denial
}

// jitter returns the wait, lengthened at random so that clients that were denied together do not retry together.
func jitter(wait time.Duration) time.Duration {
	spread := min(max(wait/10, min(wait, minSpread)), maxSpread)
	return wait + rand.N(spread+1) //nolint:gosec // A client gains nothing by predicting it.
}
