package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/tap"
)

// HTTP makes the caller's trace, in the headers traceparent and tracestate, known to what the handler does.
func HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parent := r.Header["Traceparent"]; len(parent) == 1 { // two of them are none
			r = r.WithContext(Within(r.Context(), parent[0], r.Header["Tracestate"]...))
		}
		next.ServeHTTP(w, r)
	})
}

// Tap does that for the calls of a gRPC server, as a tap.ServerInHandle: an interceptor would have to search all headers for one that
// mostly is not there.
func Tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	if parent := call.Header["traceparent"]; len(parent) == 1 {
		ctx = Within(ctx, parent[0], call.Header["tracestate"]...)
	}
	return ctx, nil
}

// Within returns a context in a caller's trace; traceparent and tracestate are as in the headers. If traceparent is empty or
// invalid the context stays what it is.
func Within(ctx context.Context, traceparent string, tracestate ...string) context.Context {
	if traceparent == "" {
		return ctx
	}
	headers := propagation.MapCarrier{"traceparent": traceparent, "tracestate": strings.Join(tracestate, ",")}
	return propagation.TraceContext{}.Extract(ctx, headers)
}

// TraceID is the trace that the caller is in, in 32 hexadecimal digits; "" if none is known.
func TraceID(ctx context.Context) string {
	if caller := trace.SpanContextFromContext(ctx); caller.HasTraceID() {
		return caller.TraceID().String()
	}
	return ""
}
