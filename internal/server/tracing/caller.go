package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/tap"
)

// HTTP wraps a handler so that the context of a request contains the caller's trace, from the headers traceparent and tracestate.
func HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parent := r.Header["Traceparent"]; len(parent) == 1 { // more than one is invalid
			r = r.WithContext(Within(r.Context(), parent[0], r.Header["Tracestate"]...))
		}
		next.ServeHTTP(w, r)
	})
}

// Tap implements [tap.ServerInHandle] and does the same for the calls of a gRPC server. An interceptor would have to search
// all headers for one that most calls do not have.
func Tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	if parent := call.Header["traceparent"]; len(parent) == 1 {
		ctx = Within(ctx, parent[0], call.Header["tracestate"]...)
	}
	return ctx, nil
}

// Within returns a context that is part of a caller's trace. traceparent and tracestate have the format of the headers. If
// traceparent is empty or invalid, Within returns ctx.
func Within(ctx context.Context, traceparent string, tracestate ...string) context.Context {
	if traceparent == "" {
		return ctx
	}
	headers := propagation.MapCarrier{"traceparent": traceparent, "tracestate": strings.Join(tracestate, ",")}
	return propagation.TraceContext{}.Extract(ctx, headers)
}

// TraceID returns the caller's trace ID in 32 hexadecimal digits, or "" if it is unknown.
func TraceID(ctx context.Context) string {
	if caller := trace.SpanContextFromContext(ctx); caller.HasTraceID() {
		return caller.TraceID().String()
	}
	return ""
}
