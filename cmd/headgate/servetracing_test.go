package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestServeTraces checks that the server adds a span to the caller's trace and logs the trace ID, and that it exports the last spans
// when it stops.
func TestServeTraces(t *testing.T) {
	t.Parallel()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	id, err := hex.DecodeString(trace)
	if err != nil {
		t.Fatal(err)
	}
	var spans atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil && r.URL.Path == "/v1/traces" {
			spans.Add(int64(bytes.Count(body, id)))
		}
	}))
	t.Cleanup(collector.Close)
	_, file := configure(t, "tracing: {address: \""+collector.URL+"\", sample: 0%}\n", fivePerHour)
	r := serve(t, "--dev", "--config", file)
	request := func(parent string) {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://"+r.addressOf("http")+"/v1/authorize", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Traceparent", parent)
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	request("00-" + trace + "-b7ad6b7169203331-01")
	request("") // not sampled: the sample share is 0 %
	r.stop()
	<-r.done
	if n := spans.Load(); n != 1 {
		t.Errorf("the trace has %d spans, want 1", n)
	}
	if log := r.log.String(); !strings.Contains(log, `"trace_id":"`+trace+`","span_id":"b7ad6b7169203331"`) {
		t.Errorf("the log does not name the trace:\n%s", log)
	}
}
