package tracing

import (
	"context"
	"math/rand/v2"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate"
)

// Note makes a span of a decision that is sampled, below the caller's if there is one. A caller decides whether there is a span,
// but not how many there are: beyond 100 a second there is none.
func (t *Tracer) Note(ctx context.Context, seen *headgate.Observation) {
	if t.provider != nil && t.samples(ctx, seen) {
		t.record(ctx, seen)
	}
}

func (t *Tracer) samples(ctx context.Context, seen *headgate.Observation) bool {
	if caller := trace.SpanContextFromContext(ctx); caller.IsValid() {
		return caller.IsSampled() && t.asked.AllowN(seen.Time(), 1)
	}
	return rand.Float64() < t.sample && t.unasked.AllowN(seen.Time(), 1) //nolint:gosec // a share, not a secret
}

// maxSpans bounds how many spans are made per second: each costs as much as ten decisions and more. Those that callers ask for
// and all others are limited apart, so that neither displaces the other.
const maxSpans = 100

func (t *Tracer) record(ctx context.Context, seen *headgate.Observation) {
	end := seen.Time()
	_, span := t.spans.Start(ctx, "headgate."+string(seen.Call), trace.WithTimestamp(end.Add(-seen.Duration)),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(describe(seen)...))
	if seen.Err != nil {
		// A denial is none: the limiter has done its work.
		span.SetStatus(codes.Error, seen.Err.Error())
	}
	span.End(trace.WithTimestamp(end))
}

// describe leaves out who was asked for: traces are read by more people than have to know.
func describe(seen *headgate.Observation) []attribute.KeyValue {
	d := &seen.Decision
	result, decisive := "allowed", least(d)
	switch {
	case seen.Err != nil:
		result = "error"
	case !d.Allowed:
		result, decisive = "denied", d.DeniedBy()
	}
	about := make([]attribute.KeyValue, 0, 10)
	about = append(about, attribute.String("headgate.result", result), attribute.String("headgate.path", string(d.Path)),
		attribute.String("headgate.rules_version", d.Version))
	if rules := rulesOf(d); len(rules) > 0 {
		about = append(about, attribute.StringSlice("headgate.rules", rules))
	}
	if decisive != nil {
		about = append(about, attribute.String("headgate.rule", decisive.Rule))
		if decisive.Err == nil && decisive.Missing == "" {
			about = append(about, attribute.Int64("headgate.remaining", decisive.Remaining))
		}
	}
	if d.RetryAfter > 0 && d.RetryAfter != headgate.Never {
		about = append(about, attribute.Float64("headgate.retry_after_seconds", d.RetryAfter.Seconds()))
	}
	for _, known := range [...]struct{ name, as string }{
		{"method", "http.request.method"}, {"route", "http.route"}, {"tier", "headgate.tier"},
	} {
		if value := seen.Attributes[known.name]; value != "" {
			about = append(about, attribute.String(known.as, value))
		}
	}
	return about
}

// least is the enforced limit with the least left; nil if there is none that is known.
func least(d *headgate.Decision) *headgate.LimitDecision {
	var found *headgate.LimitDecision
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Enforced && l.Err == nil && (found == nil || l.Remaining < found.Remaining) {
			found = l
		}
	}
	return found
}

// rulesOf are the rules that applied. The limits of one stand together.
func rulesOf(d *headgate.Decision) []string {
	var rules []string
	for i := range d.Limits {
		if rule := d.Limits[i].Rule; len(rules) == 0 || rules[len(rules)-1] != rule {
			rules = append(rules, rule)
		}
	}
	return rules
}
