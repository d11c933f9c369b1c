package attack

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/client"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	sampledTrace  = "0af7651916cd43dd8448eb211c80319c"
	sampledParent = "00-" + sampledTrace + "-b7ad6b7169203331-01"
	// spansPerSecond is the maximum rate of spans, whatever callers send.
	spansPerSecond = 100
)

// TestCallerCannotForceSampling sends checks whose traceparent says that the trace is sampled. A span costs as much as ten decisions,
// and a caller must not control how many are recorded.
func TestCallerCannotForceSampling(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	checks := size(1_500, 10_000)
	for name, send := range map[string]func(*testing.T, *fleet.Node, int) error{
		"HTTP header":   sendHeader,
		"HTTP batch":    sendBatch,
		"gRPC metadata": sendMetadata,
		"gRPC stream":   sendStream,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans, address := collectSpans(t)
			n := startServer(t, fmt.Sprintf("redis: {address: \"redis://%s\"}\ntracing: {address: %q}\n", redis.Addr(), address),
				"rules: [{id: all, by: [ip], limit: 1000000/hour}]\n")
			began := time.Now()
			if err := send(t, n, checks); err != nil {
				t.Fatal(err)
			}
			seconds := int64(time.Since(began)/time.Second) + 2 // the first and the last may be partial
			stopGently(t, n)                                    // flushes the last spans
			t.Logf("%d spans of %d checks within %d seconds", spans.Load(), checks, seconds)
			if spans.Load() > spansPerSecond*seconds {
				t.Errorf("%d spans of %d checks within %d seconds: at most %d a second", spans.Load(), checks, seconds, spansPerSecond)
			}
			if spans.Load() == 0 {
				t.Error("the trace has no span")
			}
		})
	}
}

// stopGently ends a server with SIGTERM, as an operator does.
func stopGently(t *testing.T, n *fleet.Node) {
	t.Helper()
	process, err := os.FindProcess(n.PID())
	if err == nil {
		err = process.Signal(syscall.SIGTERM)
	}
	if err != nil {
		t.Fatal(err)
	}
	for process.Signal(syscall.Signal(0)) == nil {
		time.Sleep(20 * time.Millisecond)
	}
}

// collectSpans starts a collector that counts the spans of the trace.
func collectSpans(t *testing.T) (spans *atomic.Int64, address string) {
	t.Helper()
	spans = new(atomic.Int64)
	id, err := hex.DecodeString(sampledTrace)
	if err != nil {
		t.Fatal(err)
	}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			spans.Add(int64(bytes.Count(body, id)))
		}
	}))
	t.Cleanup(collector.Close)
	return spans, collector.URL
}

func sendHeader(t *testing.T, n *fleet.Node, checks int) error {
	t.Helper()
	for range checks {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.HTTP+"/v1/authorize", nil)
		if err != nil {
			return err
		}
		request.Header.Set("Traceparent", sampledParent)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	return nil
}

func sendBatch(t *testing.T, n *fleet.Node, checks int) error {
	t.Helper()
	one := `{"traceparent": "` + sampledParent + `", "attributes": {"ip": "192.0.2.1"}}`
	body := `{"requests": [` + strings.Repeat(one+",", 499) + one + `]}`
	for ; checks > 0; checks -= 500 {
		if _, err := n.Fetch(t.Context(), http.MethodPost, n.HTTP, "/v1/check/batch", body); err != nil {
			return err
		}
	}
	return nil
}

func sendMetadata(t *testing.T, n *fleet.Node, checks int) error {
	t.Helper()
	conn, err := grpc.NewClient(n.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", sampledParent)
	batch := &checkv1.CheckBatchRequest{}
	for range 500 {
		batch.Requests = append(batch.Requests, &checkv1.CheckRequest{Attributes: map[string]string{"ip": "192.0.2.1"}})
	}
	for ; checks > 0 && err == nil; checks -= 500 {
		_, err = checkv1.NewCheckServiceClient(conn).CheckBatch(ctx, batch)
	}
	return err
}

func sendStream(t *testing.T, n *fleet.Node, checks int) error {
	t.Helper()
	c, err := client.New(client.Options{
		Addresses: []string{n.GRPC},
		Timeout:   10 * time.Second, TraceParent: func(context.Context) string { return sampledParent },
	})
	if err != nil {
		return err
	}
	defer c.Close()
	for ; checks > 0 && err == nil; checks-- {
		_, err = c.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"ip": "192.0.2.1"}})
	}
	return err
}
