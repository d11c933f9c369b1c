// Package tracing records decisions as spans: one span for each sampled decision, exported by OTLP over HTTP. It also
// extracts the caller's trace (W3C Trace Context), so that logs and denials can refer to it, whether spans are exported or
// not.
//
// A slow or unavailable collector never delays a decision: spans wait in a bounded queue and are dropped when it is full.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/internal/ratelog"
)

const (
	// flushTime is the time to export the last spans when a server stops.
	flushTime = 2 * time.Second
	// exportTime is the timeout of one batch, retries included. Other spans wait in the queue.
	exportTime = 10 * time.Second
	// logEvery limits the log records about an unreachable collector.
	logEvery = time.Minute
)

// Options configures a Tracer.
type Options struct {
	// Address is the base URL of the collector; spans are sent to /v1/traces below it. If it is "", no spans are recorded.
	Address string
	// Sample is the fraction, 0 to 1, of the decisions to record if the caller did not decide that. At most 100 spans a
	// second are recorded of these, and as many of those that the caller samples.
	Sample float64
	// Version and Node identify this server in spans.
	Version, Node string
	// Log receives a record when spans are dropped, at most one a minute.
	Log *slog.Logger
}

// Tracer records spans and exports them. The zero Tracer records none.
type Tracer struct {
	spans    trace.Tracer
	sample   float64
	provider *sdktrace.TracerProvider // nil if no spans are recorded
	exporter *exporter
	// callerSpans limits the spans of traces that the caller samples, sampledSpans all others.
	callerSpans, sampledSpans *rate.Limiter
}

// New returns a tracer. It does not wait for the collector. Close the tracer after the last decision.
func New(ctx context.Context, o Options) (*Tracer, error) {
	if o.Address == "" {
		return &Tracer{}, nil
	}
	address, err := url.JoinPath(o.Address, "v1/traces")
	if err != nil {
		return nil, fmt.Errorf("tracing.address: %w: write http://host:4318", err)
	}
	sender, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(address))
	if err != nil {
		return nil, fmt.Errorf("tracing.address: %w", err)
	}
	to := &exporter{SpanExporter: sender, address: address, log: o.Log, logged: ratelog.Limiter{Every: logEvery}}
	provider := sdktrace.NewTracerProvider(
		// Observe decides what is sampled, before a span is created.
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithBatcher(to, sdktrace.WithExportTimeout(exportTime)),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "headgate"),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Node),
		)),
	)
	return &Tracer{
		spans: provider.Tracer("github.com/headgate/headgate"), sample: o.Sample, provider: provider, exporter: to,
		callerSpans: rate.NewLimiter(maxSpans, maxSpans), sampledSpans: rate.NewLimiter(maxSpans, maxSpans),
	}, nil
}

// Close exports the remaining spans, for up to two seconds.
func (t *Tracer) Close(ctx context.Context) {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.exporter.log.WarnContext(ctx, "the last spans were not exported", "address", t.exporter.address, "error", err)
		t.exporter.closed.Store(true)
		_ = t.exporter.Shutdown(ctx) // cancels the current export; its error is the timeout logged above
	}
}

// exporter logs failed exports. OpenTelemetry would report them to an error handler that is global to the process.
type exporter struct {
	sdktrace.SpanExporter
	address string
	log     *slog.Logger
	logged  ratelog.Limiter
	dropped int // dropped spans that are not logged yet; exports do not run concurrently
	closed  atomic.Bool
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil || e.closed.Load() {
		return nil
	}
	e.dropped += len(spans)
	if _, ok := e.logged.Allow(""); ok {
		e.log.WarnContext(ctx, "cannot export spans: spans dropped; check tracing.address in the config",
			"address", e.address, "spans", e.dropped, "error", err)
		e.dropped = 0
	}
	return nil
}
