package grpclimit

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
)

func setHeader(ctx context.Context, d *headgate.Decision) {
	if md := rateLimits(d); len(md) > 0 {
		_ = grpc.SetHeader(ctx, md) // fails only if the header is sent, or nobody is there
	}
}

// rateLimits are the fields of draft-ietf-httpapi-ratelimit-headers, of the limits that clients may see. A limit that
// the store did not decide has a policy only: what is left is not known.
func rateLimits(d *headgate.Decision) metadata.MD {
	policies, limits := make([]byte, 0, 64), make([]byte, 0, 64)
	named := 0
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Exposed || named == maxNamed {
			continue
		}
		named++
		policies = appendPolicy(policies, l)
		if l.Err == nil {
			limits = appendState(limits, l)
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

// appendPolicy writes what a limit is: "search-by-key";q=1000;w=60.
func appendPolicy(text []byte, l *headgate.LimitDecision) []byte {
	text = appendName(text, l)
	text = strconv.AppendInt(append(text, ";q="...), l.Limit.Count, 10)
	if w := windowOf(l); w > 0 && w%time.Second == 0 {
		text = strconv.AppendInt(append(text, ";w="...), int64(w/time.Second), 10)
	}
	return text
}

// appendState writes how a limit stands: "search-by-key";r=187;t=1. One that was not asked, because the call lacks an
// attribute, has no time at which that changes.
func appendState(text []byte, l *headgate.LimitDecision) []byte {
	text = appendName(text, l)
	text = strconv.AppendInt(append(text, ";r="...), l.Remaining, 10)
	if !l.Time.IsZero() {
		text = strconv.AppendInt(append(text, ";t="...), up(resetOf(l), time.Second), 10)
	}
	return text
}

func appendName(text []byte, l *headgate.LimitDecision) []byte {
	if len(text) > 0 {
		text = append(text, ", "...)
	}
	return strconv.AppendQuoteToASCII(text, policy(l))
}

// windowOf is the span that a limit's count is for; 0 if it is not known.
func windowOf(l *headgate.LimitDecision) time.Duration {
	if l.Limit.Calendar == headgate.NoCalendar {
		return l.Limit.Window
	}
	charge := headgate.Charge{Subject: l.Subject, Limit: l.Limit}
	terms, ok := charge.Terms(l.Time)
	if !ok || l.Time.IsZero() {
		return 0
	}
	return time.Duration(terms.End-terms.Start) * time.Microsecond
}

// resetOf is when more is to be had: of a limit that refuses when the call fits, so that retry-after is never earlier;
// of the others when nothing is used.
func resetOf(l *headgate.LimitDecision) time.Duration {
	if l.RetryAfter > 0 {
		return l.RetryAfter
	}
	return l.ResetAfter
}
