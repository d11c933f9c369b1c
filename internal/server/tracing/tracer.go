// Package tracing tells traces of decisions: one span for each decision that is sampled, sent to a collector by OTLP over
// HTTP. It also knows the trace that a caller is in, W3C Trace Context, so that logs and denials can name it, whether spans
// are sent or not.
//
// A collector that is slow or away never holds up a decision: spans wait in a queue with an end, and are lost beyond it.
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
	// flushTime is for the last spans when a server stops.
	flushTime = 2 * time.Second
	// exportTime is for one batch, attempts after a denial included. What comes meanwhile waits.
	exportTime = 10 * time.Second
	// logEvery keeps an unreachable collector from filling the log.
	logEvery = time.Minute
)

// Options of a Tracer.
type Options struct {
	// Address is http:// or https:// and where the collector is; spans go to /v1/traces below it. "" means that there are none.
	Address string
	// Sample is the share, 0 to 1, of the decisions that get a span where the caller has not decided that. At most 100 a second do,
	// and as many where the caller has.
	Sample float64
	// Version and Node are of this server, as spans name it.
	Version, Node string
	// Log is told when spans are lost, at most once a minute.
	Log *slog.Logger
}

// Tracer makes spans and sends them. The zero Tracer makes none.
type Tracer struct {
	spans    trace.Tracer
	sample   float64
	provider *sdktrace.TracerProvider // nil if there are no spans
	exporter *exporter
	// asked is for spans of traces that the caller samples, and unasked for all others.
	asked, unasked *rate.Limiter
}

// New makes a tracer. It does not wait for the collector. Close it when there are no more decisions.
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
		// What is sampled is decided before anything is made.
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
		asked: rate.NewLimiter(maxSpans, maxSpans), unasked: rate.NewLimiter(maxSpans, maxSpans),
	}, nil
}

// Close sends what waits, for up to two seconds.
func (t *Tracer) Close(ctx context.Context) {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.exporter.log.WarnContext(ctx, "the last spans did not reach the collector", "address", t.exporter.address, "error", err)
		t.exporter.over.Store(true)
		_ = t.exporter.Shutdown(ctx) // ends what is under way; it is the time that has run out, which was said
	}
}

// exporter tells of failures itself. OpenTelemetry would tell a handler that is global to the process.
type exporter struct {
	sdktrace.SpanExporter
	address string
	log     *slog.Logger
	logged  ratelog.Limiter
	lost    int // spans that are not logged yet; batches come one after the other
	over    atomic.Bool
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil || e.over.Load() {
		return nil
	}
	e.lost += len(spans)
	if _, ok := e.logged.Allow(""); ok {
		e.log.WarnContext(ctx, "spans do not reach the collector, and are lost: see tracing.address in the config",
			"address", e.address, "spans", e.lost, "error", err)
		e.lost = 0
	}
	return nil
}
