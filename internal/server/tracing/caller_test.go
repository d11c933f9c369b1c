package tracing_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/internal/server/checkhttp"
	"github.com/headgate/headgate/internal/server/envoyrls"
	"github.com/headgate/headgate/internal/server/listen"
	"github.com/headgate/headgate/internal/server/tracing"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const callerSpan = "b7ad6b7169203331"

// parentOf returns the traceparent header of a caller in the nth trace.
func parentOf(n int) string { return "00-" + traceOf(n) + "-" + callerSpan + "-01" }

func traceOf(n int) string { return fmt.Sprintf("%032x", n+1) }

// world is a server whose decisions are traced, with clients connected to it.
type world struct {
	http  string
	calls *grpc.ClientConn
	limit *client.Client
}

type traceKey struct{}

func newWorld(t *testing.T, observe func(context.Context, *headgate.Observation)) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	limiter := newLimiter(t, headgate.Rule{ID: "all", By: []string{}, Limit: headgate.PerHour(1_000)}).WithObserver(observe)
	checks := httptest.NewServer(tracing.HTTP(checkhttp.New(limiter, checkhttp.Options{Log: log})))
	t.Cleanup(checks.Close)
	server := listen.NewGRPC(nil, checkgrpc.Codec(), tracing.Tap)
	checkgrpc.New(limiter, checkgrpc.Options{Log: log}).Register(server)
	envoyrls.New(limiter, envoyrls.Options{Log: log}).Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	address := listener.Addr().String()
	calls, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = calls.Close() })
	limit, err := client.New(client.Options{
		Addresses: []string{address}, Timeout: 10 * time.Second,
		TraceParent: func(ctx context.Context) string {
			parent, _ := ctx.Value(traceKey{}).(string)
			return parent
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limit.Close)
	return &world{checks.URL, calls, limit}
}

// post sends an HTTP request.
func (w *world) post(ctx context.Context, path, body, parent string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.http+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if parent != "" {
		req.Header.Set("traceparent", parent)
		req.Header.Add("tracestate", "a=1")
		req.Header.Add("tracestate", "b=2")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s: %w", res.StatusCode, text, err)
	}
	return nil
}

// TestCallersTrace checks for every protocol that the span is a child of the caller's span.
func TestCallersTrace(t *testing.T) {
	t.Parallel()
	to := newCollector(t)
	tracer := newTracer(t, to.URL+"/base", 0, t.Output())
	w := newWorld(t, tracer.Observe)
	checks := checkv1.NewCheckServiceClient(w.calls)
	other := parentOf(998) // of the call, if the request has its own
	ways := []struct {
		name, span string
		check      func(ctx context.Context, parent string) error
	}{
		{"HTTP", "headgate.check", func(ctx context.Context, parent string) error {
			return w.post(ctx, "/v1/check", `{"attributes": {}}`, parent)
		}},
		{"forward-auth", "headgate.check", func(ctx context.Context, parent string) error {
			return w.post(ctx, "/v1/authorize", "", parent)
		}},
		{"a batch in HTTP", "headgate.check", func(ctx context.Context, parent string) error {
			return w.post(ctx, "/v1/check/batch", `{"requests": [{"traceparent": "`+parent+`"}]}`, other)
		}},
		{"reserve in HTTP", "headgate.reserve", func(ctx context.Context, parent string) error {
			return w.post(ctx, "/v1/reserve", `{"traceparent": "`+parent+`"}`, "")
		}},
		{"gRPC", "headgate.check", func(ctx context.Context, parent string) error {
			_, err := checks.Check(metadata.AppendToOutgoingContext(ctx, "traceparent", parent), &checkv1.CheckRequest{})
			return err
		}},
		{"a batch in gRPC", "headgate.check", func(ctx context.Context, parent string) error {
			_, err := checks.CheckBatch(metadata.AppendToOutgoingContext(ctx, "traceparent", other),
				&checkv1.CheckBatchRequest{Requests: []*checkv1.CheckRequest{{Traceparent: parent}}})
			return err
		}},
		{"reserve in gRPC", "headgate.reserve", func(ctx context.Context, parent string) error {
			_, err := checks.Reserve(ctx, &checkv1.ReserveRequest{Request: &checkv1.CheckRequest{Traceparent: parent}})
			return err
		}},
		{"package client", "headgate.check", func(ctx context.Context, parent string) error {
			d, err := w.limit.Check(context.WithValue(ctx, traceKey{}, parent), headgate.Request{})
			if d.Path == headgate.PathFailed {
				return d.Limits[0].Err
			}
			return err
		}},
		{"package client, outside the stream", "headgate.peek", func(ctx context.Context, parent string) error {
			_, err := w.limit.Peek(context.WithValue(ctx, traceKey{}, parent), headgate.Request{})
			return err
		}},
		{"Envoy", "headgate.check", func(ctx context.Context, parent string) error {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent)
			_, err := rlsv3.NewRateLimitServiceClient(w.calls).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
				Domain: "api", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
					Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "a", Value: "b"}},
				}},
			})
			return err
		}},
	}
	for i, way := range ways {
		if err := way.check(t.Context(), parentOf(i)); err != nil {
			t.Errorf("%s: %v", way.name, err)
		}
	}
	tracer.Close(t.Context())
	spans := to.byTrace()
	for i, way := range ways {
		span := spans[traceOf(i)]
		if hex.EncodeToString(span.GetParentSpanId()) != callerSpan || span.GetName() != way.span {
			t.Errorf("%s: %v", way.name, span)
		}
	}
	if len(spans) != len(ways) {
		t.Errorf("%d spans for %d checks", len(spans), len(ways))
	}
	if state := spans[traceOf(0)].GetTraceState(); state != "a=1,b=2" {
		t.Errorf("tracestate is %q", state)
	}
	if to.from["service.name"] != "headgate" || to.from["service.version"] != "1.2.3" || to.from["service.instance.id"] != "node-1" {
		t.Errorf("resource attributes: %v", to.from)
	}
}

// TestInvalidTraceparent checks that an invalid traceparent is ignored and the trace of the call stays.
func TestInvalidTraceparent(t *testing.T) {
	t.Parallel()
	ctx := tracing.Within(t.Context(), parentOf(0))
	for _, parent := range []string{"", "-", "nonsense", strings.Replace(parentOf(1), "00-", "ff-", 1), parentOf(-1), parentOf(1) + "-x"} {
		if got := tracing.TraceID(tracing.Within(ctx, parent)); got != traceOf(0) {
			t.Errorf("%q: the trace is %q", parent, got)
		}
	}
	if got := tracing.TraceID(t.Context()); got != "" {
		t.Errorf("without a caller: the trace is %q", got)
	}
	traceID := "none"
	handler := tracing.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { traceID = tracing.TraceID(r.Context()) }))
	twice := httptest.NewRequest(http.MethodGet, "/", nil)
	twice.Header["Traceparent"] = []string{parentOf(1), parentOf(2)}
	if handler.ServeHTTP(httptest.NewRecorder(), twice); traceID != "" {
		t.Errorf("two headers: the trace is %q", traceID)
	}
}
