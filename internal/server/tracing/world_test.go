package tracing_test

import (
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/tracing"
	"github.com/headgate/headgate/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is an OTLP/HTTP collector.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
	header http.Header // of the last batch
	spans  []*tracev1.Span
	from   map[string]string // resource attributes
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var batch collectorv1.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/base/v1/traces" || proto.Unmarshal(body, &batch) != nil {
			t.Errorf("%s: %x: %v", r.URL.Path, body, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies, c.header = append(c.bodies, body), r.Header
		for _, from := range batch.GetResourceSpans() {
			c.from = texts(from.GetResource().GetAttributes())
			for _, scope := range from.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// byTrace returns the received spans by trace ID.
func (c *collector) byTrace() map[string]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := map[string]*tracev1.Span{}
	for _, s := range c.spans {
		spans[hex.EncodeToString(s.GetTraceId())] = s
	}
	return spans
}

// texts returns attributes as text: lists are joined by spaces, numbers are formatted by proto.
func texts(all []*commonv1.KeyValue) map[string]string {
	read := map[string]string{}
	for _, a := range all {
		switch v := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			read[a.GetKey()] = v.StringValue
		case *commonv1.AnyValue_ArrayValue:
			for i, one := range v.ArrayValue.GetValues() {
				if i > 0 {
					read[a.GetKey()] += " "
				}
				read[a.GetKey()] += one.GetStringValue()
			}
		default:
			read[a.GetKey()] = a.GetValue().String()
		}
	}
	return read
}

// newTracer returns a tracer that the test must close.
func newTracer(t testing.TB, address string, sample float64, log io.Writer) *tracing.Tracer {
	t.Helper()
	tracer, err := tracing.New(t.Context(), tracing.Options{
		Address: address, Sample: sample, Version: "1.2.3", Node: "node-1", Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

func newLimiter(t testing.TB, rules ...headgate.Rule) *headgate.Limiter {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}
