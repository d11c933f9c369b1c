package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/tracing"
	"github.com/headgate/headgate/internal/testenv"
)

func unsampled(n int) string { return strings.TrimSuffix(parentOf(n), "1") + "0" }

// TestSampling checks that the caller's sampling decision is followed, up to maxSpans, and that other requests are sampled by
// the ratio.
func TestSampling(t *testing.T) {
	t.Parallel()
	const requests = 2_000
	for name, c := range map[string]struct {
		parent           string
		sample           float64
		minimum, maximum int
	}{
		"the caller samples":   {parentOf(0), 0, 100, 500}, // limited by maxSpans
		"the caller does not":  {unsampled(0), 1, 0, 0},
		"no caller, one in 50": {"", 0.02, 15, 80},
		"no caller, all":       {"", 1, 100, 500}, // limited by maxSpans
		"no caller, none":      {"", 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := newCollector(t)
			tracer := newTracer(t, to.URL+"/base", c.sample, t.Output())
			ctx := tracing.Within(t.Context(), c.parent)
			for range requests { // fewer than the capacity of the queue
				tracer.Observe(ctx, &headgate.Observation{Call: headgate.CallCheck})
			}
			tracer.Close(t.Context())
			if n := len(to.spans); n < c.minimum || n > c.maximum {
				t.Errorf("%d of %d have a span, want %d to %d", n, requests, c.minimum, c.maximum)
			}
		})
	}
}

// TestSpan checks that a span contains the decision and the rules, and not the subject.
func TestSpan(t *testing.T) {
	t.Parallel()
	to := newCollector(t)
	tracer := newTracer(t, to.URL+"/base", 1, t.Output())
	limiter := newLimiter(t,
		headgate.Rule{ID: "wide", By: []string{"user"}, Limit: headgate.PerHour(100)},
		headgate.Rule{ID: "narrow", By: []string{"user"}, Limit: headgate.PerHour(1)},
		headgate.Rule{ID: "trial", By: []string{"user"}, Limit: headgate.PerHour(1), Mode: headgate.Shadow},
	).WithObserver(tracer.Observe)
	attributes := headgate.Attributes{
		"user": "private-ann", "path": "/private/path", "method": "GET", "route": "/private/{id}", "tier": "pro",
	}
	began := time.Now()
	requests := []headgate.Request{{Attributes: attributes}, {Attributes: attributes}, {Rule: "no-such"}}
	for i, req := range requests {
		if _, err := limiter.Check(tracing.Within(t.Context(), parentOf(i)), req); (err != nil) != (req.Rule != "") {
			t.Error(err)
		}
	}
	tracer.Close(t.Context())
	want := map[string]string{
		"headgate.path": "store", "headgate.rules_version": limiter.Rules().Version(), "headgate.rules": "wide narrow trial",
		"http.request.method": "GET", "http.route": "/private/{id}", "headgate.tier": "pro",
		"headgate.rule": "narrow", "headgate.remaining": "int_value:0", "headgate.result": "allowed",
	}
	spans := to.byTrace()
	check := func(n int, status tracev1.Status_StatusCode, want map[string]string) {
		t.Helper()
		span := spans[traceOf(n)]
		got := texts(span.GetAttributes())
		for name, value := range want {
			if name == "headgate.retry_after_seconds" && strings.HasPrefix(got[name], value) {
				got[name] = value
			}
			if got[name] != value {
				t.Errorf("%s is %q, want %q", name, got[name], value)
			}
		}
		if len(got) != len(want) || span.GetStatus().GetCode() != status || span.GetKind() != tracev1.Span_SPAN_KIND_SERVER {
			t.Errorf("%v", span)
		}
		begin, end := time.Unix(0, int64(span.GetStartTimeUnixNano())), time.Unix(0, int64(span.GetEndTimeUnixNano()))
		if !begin.Before(end) || begin.Before(began.Add(-time.Millisecond)) || end.After(time.Now()) {
			t.Errorf("the span is from %v to %v", begin, end)
		}
	}
	check(0, tracev1.Status_STATUS_CODE_UNSET, want)
	want["headgate.result"], want["headgate.retry_after_seconds"] = "denied", "double_value:3599"
	check(1, tracev1.Status_STATUS_CODE_UNSET, want)
	check(2, tracev1.Status_STATUS_CODE_ERROR, map[string]string{
		"headgate.result": "error", "headgate.path": "none", "headgate.rules_version": limiter.Rules().Version(),
	})
	for _, body := range to.bodies {
		if bytes.Contains(body, []byte("private-ann")) || bytes.Contains(body, []byte("/private/path")) {
			t.Errorf("a span contains private attributes: %q", body)
		}
	}
}

// TestCollectorUnavailable checks that an unavailable, hanging or failing collector delays no decision, and is logged once.
func TestCollectorUnavailable(t *testing.T) {
	t.Parallel()
	unavailable, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unavailable.Close() })
	go func() { // a closed port could be reused by another test
		for conn, err := unavailable.Accept(); err == nil; conn, err = unavailable.Accept() {
			_ = conn.Close()
		}
	}()
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(release) })
	failing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(failing.Close)
	for name, c := range map[string]struct{ address, want string }{
		"unavailable": {"http://" + unavailable.Addr().String(), "spans dropped"},
		"hangs":       {hanging.URL, "the last spans were not exported"},
		"failing":     {failing.URL, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log testenv.Log
			tracer := newTracer(t, c.address, 1, &log)
			const requests = 10_000 // many times the capacity of the queue
			began := time.Now()
			for range requests {
				tracer.Observe(t.Context(), &headgate.Observation{Call: headgate.CallCheck})
			}
			if elapsed := time.Since(began); elapsed > 5*time.Second { // a hanging batch takes 10
				t.Errorf("%d decisions took %v", requests, elapsed)
			}
			began = time.Now()
			tracer.Close(t.Context())
			if elapsed := time.Since(began); elapsed > 3*time.Second {
				t.Errorf("Close took %v", elapsed)
			}
			tracer.Observe(t.Context(), &headgate.Observation{}) // ignored after Close
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, c.want) {
				t.Errorf("the log does not contain %q once:\n%s", c.want, text)
			}
		})
	}
}

// TestHeadersFromEnvironment checks that headers for the collector, such as a token, are read from the environment.
func TestHeadersFromEnvironment(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
	to := newCollector(t)
	tracer := newTracer(t, to.URL+"/base", 1, t.Output())
	tracer.Observe(t.Context(), &headgate.Observation{})
	tracer.Close(t.Context())
	if got := to.header.Get("X-Token"); got != "secret" {
		t.Errorf("x-token is %q", got)
	}
}

func TestNoTraces(t *testing.T) {
	t.Parallel()
	tracer := newTracer(t, "", 1, io.Discard)
	tracer.Observe(tracing.Within(t.Context(), parentOf(0)), &headgate.Observation{})
	tracer.Close(t.Context())
}

func TestLogHandler(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := slog.New(tracing.LogHandler(slog.NewJSONHandler(&text, nil))).With("a", 1)
	log.InfoContext(tracing.Within(t.Context(), parentOf(0)), "one")
	log.InfoContext(t.Context(), "two")
	one, two, _ := strings.Cut(text.String(), "\n")
	want := `"msg":"one","a":1,"trace_id":"` + traceOf(0) + `","span_id":"` + callerSpan + `"}`
	if !strings.HasSuffix(one, want) || strings.Contains(two, "trace_id") {
		t.Errorf("%s", text.String())
	}
}

// TestObserveAllocatesNothing covers decisions that are not sampled.
func TestObserveAllocatesNothing(t *testing.T) {
	to := newCollector(t)
	tracer := newTracer(t, to.URL+"/base", 0, t.Output())
	defer tracer.Close(t.Context())
	o := &headgate.Observation{Call: headgate.CallCheck}
	for _, ctx := range []context.Context{t.Context(), tracing.Within(t.Context(), unsampled(0))} {
		fewest := math.Inf(1) // allocations of other goroutines are counted, too
		for range 5 {
			fewest = min(fewest, testing.AllocsPerRun(1_000, func() { tracer.Observe(ctx, o) }))
		}
		if fewest != 0 {
			t.Errorf("%v allocations", fewest)
		}
	}
}

var errAny = errors.New("any")

func BenchmarkObserve(b *testing.B) {
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer sink.Close()
	for name, parent := range map[string]string{"no-caller": "", "unsampled": unsampled(0), "sampled": parentOf(0)} {
		b.Run(name, func(b *testing.B) {
			tracer := newTracer(b, sink.URL, 0.01, io.Discard)
			defer tracer.Close(context.Background())
			ctx, cancel := context.WithCancel(tracing.Within(b.Context(), parent))
			defer cancel()
			o := &headgate.Observation{Call: headgate.CallCheck, Err: errAny}
			for b.Loop() {
				tracer.Observe(ctx, o)
			}
		})
	}
}

func BenchmarkHTTP(b *testing.B) {
	handler := tracing.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, parent := range map[string]string{"without": "", "with": parentOf(0)} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodPost, "/v1/check", nil)
			r.Header.Set("Content-Type", "application/json")
			if parent != "" {
				r.Header.Set("traceparent", parent)
			}
			for b.Loop() {
				handler.ServeHTTP(nil, r)
			}
		})
	}
}
