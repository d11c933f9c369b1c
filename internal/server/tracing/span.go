package tracing

import (
	"context"
	"math/rand/v2"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate"
)

// Observe records a span for a sampled decision, as a child of the caller's span if there is one. A caller decides whether
// its requests are sampled, but at most maxSpans a second are recorded.
func (t *Tracer) Observe(ctx context.Context, o *headgate.Observation) {
	if t.provider != nil && t.samples(ctx, o) {
		t.record(ctx, o)
	}
}

func (t *Tracer) samples(ctx context.Context, o *headgate.Observation) bool {
	if caller := trace.SpanContextFromContext(ctx); caller.IsValid() {
		return caller.IsSampled() && t.callerSpans.AllowN(o.Time(), 1)
	}
	return rand.Float64() < t.sample && t.sampledSpans.AllowN(o.Time(), 1) //nolint:gosec // sampling needs no secure random numbers
}

// maxSpans is the maximum number of spans per second: a span costs as much as ten decisions or more. Spans that callers
// sample and spans that we sample are limited separately, so that neither displaces the other.
const maxSpans = 100

func (t *Tracer) record(ctx context.Context, o *headgate.Observation) {
	end := o.Time()
	_, span := t.spans.Start(ctx, "headgate."+string(o.Call), trace.WithTimestamp(end.Add(-o.Duration)),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(describe(o)...))
	if o.Err != nil {
		// A denial is not an error: the limiter has done its work.
		span.SetStatus(codes.Error, o.Err.Error())
	}
	span.End(trace.WithTimestamp(end))
}

// describe returns the attributes of a span. It omits the subject: traces have more readers than need to know it.
func describe(o *headgate.Observation) []attribute.KeyValue {
	d := &o.Decision
	result, decisive := "allowed", lowest(d)
	switch {
	case o.Err != nil:
		result = "error"
	case !d.Allowed:
		result, decisive = "denied", d.DeniedBy()
	}
	attributes := make([]attribute.KeyValue, 0, 10)
	attributes = append(attributes, attribute.String("headgate.result", result), attribute.String("headgate.path", string(d.Path)),
		attribute.String("headgate.rules_version", d.Version))
	if rules := rulesOf(d); len(rules) > 0 {
		attributes = append(attributes, attribute.StringSlice("headgate.rules", rules))
	}
	if decisive != nil {
		attributes = append(attributes, attribute.String("headgate.rule", decisive.Rule))
		if decisive.Err == nil && decisive.Missing == "" {
			attributes = append(attributes, attribute.Int64("headgate.remaining", decisive.Remaining))
		}
	}
	if d.RetryAfter > 0 && d.RetryAfter != headgate.Never {
		attributes = append(attributes, attribute.Float64("headgate.retry_after_seconds", d.RetryAfter.Seconds()))
	}
	for _, known := range [...]struct{ name, as string }{
		{"method", "http.request.method"}, {"route", "http.route"}, {"tier", "headgate.tier"},
	} {
		if value := o.Attributes[known.name]; value != "" {
			attributes = append(attributes, attribute.String(known.as, value))
		}
	}
	return attributes
}

// lowest returns the enforced limit with the fewest remaining units, or nil if there is none.
func lowest(d *headgate.Decision) *headgate.LimitDecision {
	var lowestLimit *headgate.LimitDecision
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Enforced && l.Err == nil && (lowestLimit == nil || l.Remaining < lowestLimit.Remaining) {
			lowestLimit = l
		}
	}
	return lowestLimit
}

// rulesOf returns the rules that applied. The limits of a rule are adjacent in d.Limits.
func rulesOf(d *headgate.Decision) []string {
	var rules []string
	for i := range d.Limits {
		if rule := d.Limits[i].Rule; len(rules) == 0 || rules[len(rules)-1] != rule {
			rules = append(rules, rule)
		}
	}
	return rules
}
