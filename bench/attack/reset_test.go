package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
	"github.com/headgate/headgate/storewrap"
)

// otpLimit is the hourly limit of a rule that must not be evaded: one-time passwords by text message.
const otpLimit = 3

func otp() headgate.Rule {
	return headgate.Rule{ID: "otp", By: []string{"ip"}, Limit: headgate.PerHour(otpLimit)}
}

// stores returns the stores that a program may use, each with the default options.
func stores(t *testing.T) map[string]headgate.Store {
	t.Helper()
	memory := storewrap.New(memstore.New(memstore.Options{}), storewrap.Options{Log: quiet()})
	t.Cleanup(memory.Close)
	return map[string]headgate.Store{
		"bare memory": memstore.New(memstore.Options{}),
		"memory":      memory,
		"bare redis":  openRedis(t, startRedis(t)),
		"redis":       openStore(t, startRedis(t)),
	}
}

// TestResetHTTP sends requests and resets them in the same write: the server reads both at once, so the handler's context has
// ended before the limiter is called.
func TestResetHTTP(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiter := newLimiter(t, store, otp())
			var ran atomic.Int64
			limit := httplimit.New(limiter, httplimit.Options{Log: quiet()})
			server := httptest.NewUnstartedServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran.Add(1) })))
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // the test's own server
			if err != nil {
				t.Fatal(err)
			}
			sent := reset(t, conn, nil, ":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/otp")
			judgeReset(t, limiter, &ran, sent)
		})
	}
}

// TestResetGRPC does the same with a gRPC server.
func TestResetGRPC(t *testing.T) {
	t.Parallel()
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiter := newLimiter(t, store, otp())
			interceptors, err := grpclimit.New(limiter, grpclimit.Options{Log: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			service := &countingHealth{}
			server := grpc.NewServer(grpc.UnaryInterceptor(interceptors.Unary))
			healthv1.RegisterHealthServer(server, service)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = server.Serve(listener) }()
			defer server.Stop()
			conn, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			sent := reset(t, conn, []byte{0, 0, 0, 0, 0}, ":method", "POST", ":scheme", "http", ":authority", "x",
				":path", "/grpc.health.v1.Health/Check", "content-type", "application/grpc", "te", "trailers")
			judgeReset(t, limiter, &service.ran, sent)
		})
	}
}

// countingHealth is a service that counts its calls.
type countingHealth struct {
	healthv1.UnimplementedHealthServer
	ran atomic.Int64
}

func (h *countingHealth) Check(context.Context, *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	h.ran.Add(1)
	return &healthv1.HealthCheckResponse{}, nil
}

// judgeReset waits until the server is idle and expects that the handler ran at most as often as the limit allows, and that the
// limit was charged.
func judgeReset(t *testing.T, limiter *headgate.Limiter, ran *atomic.Int64, sent int) {
	t.Helper()
	here := headgate.Request{Attributes: headgate.Attributes{"ip": "127.0.0.1"}}
	charged := func() int64 {
		d, err := limiter.Peek(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		return otpLimit - d.Limits[0].Remaining
	}
	awaitCharged(charged)
	last := int64(-1)
	for ran.Load() != last {
		last = ran.Load()
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d requests reset at once: the handler ran %d times, %d of %d charged", sent, last, charged(), otpLimit)
	if last > otpLimit {
		t.Errorf("the handler ran %d times, limit %d", last, otpLimit)
	}
	if charged() != otpLimit {
		t.Errorf("%d charged of %d: reset requests are free", charged(), otpLimit)
	}
}

// awaitCharged waits until the limit is charged, for at most ten seconds.
func awaitCharged(charged func() int64) {
	for deadline := time.Now().Add(10 * time.Second); charged() < otpLimit && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestResetService resets calls of the service. A check must be charged even if the caller does not wait for the response.
func TestResetService(t *testing.T) {
	t.Parallel()
	// A busy machine must not look like an outage of Redis.
	node := startServer(t, fmt.Sprintf("redis: {address: %q, deadline: 1s}\n", "redis://"+startRedis(t).Addr()),
		fmt.Sprintf("rules: [{id: otp, by: [user], limit: %d/hour}]\n", otpLimit))
	checkRequest := func(user string) *checkv1.CheckRequest {
		return &checkv1.CheckRequest{Attributes: map[string]string{"user": user}}
	}
	for method, message := range map[string]proto.Message{
		checkv1.CheckService_Check_FullMethodName:      checkRequest("check"),
		checkv1.CheckService_CheckBatch_FullMethodName: &checkv1.CheckBatchRequest{Requests: []*checkv1.CheckRequest{checkRequest("batch")}},
		checkv1.CheckService_Reserve_FullMethodName:    &checkv1.ReserveRequest{Request: checkRequest("reserve")},
		checkv1.CheckService_CheckStream_FullMethodName: &checkv1.CheckStreamRequest{
			Checks: []*checkv1.StreamCheck{{Id: 1, Request: checkRequest("stream")}},
		},
		"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit": &rlsv3.RateLimitRequest{
			Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
				{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "rls"}}},
			},
		},
	} {
		t.Run(path.Base(method), func(t *testing.T) {
			t.Parallel()
			data, err := proto.Marshal(message)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", node.GRPC)
			if err != nil {
				t.Fatal(err)
			}
			frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
			sent := reset(t, conn, frame, ":method", "POST", ":scheme", "http", ":authority", "x", ":path", method,
				"content-type", "application/grpc", "te", "trailers")
			judgeCharged(t, node, map[string]string{
				"Check": "check", "CheckBatch": "batch", "Reserve": "reserve", "CheckStream": "stream", "ShouldRateLimit": "rls",
			}[path.Base(method)], sent)
		})
	}
	for _, operation := range []string{"check", "reserve"} {
		t.Run("JSON "+operation, func(t *testing.T) {
			t.Parallel()
			body := fmt.Sprintf(`{"attributes": {"user": "json-%s"}}`, operation)
			sent := size(200, 2_000)
			for range sent {
				hangUp(t, node.HTTP, fmt.Sprintf("POST /v1/%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
					operation, len(body), body))
			}
			judgeCharged(t, node, "json-"+operation, sent)
		})
	}
}

// hangUp sends a request and closes the connection immediately, with a reset.
func hangUp(t *testing.T, address, request string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Error(err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// judgeCharged expects that the service has charged a user.
func judgeCharged(t *testing.T, node *fleet.Node, user string, sent int) {
	t.Helper()
	charged := func() int64 {
		body, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/peek", fmt.Sprintf(`{"attributes": {"user": %q}}`, user))
		if err != nil {
			t.Fatal(err)
		}
		var decision struct{ Limits []struct{ Remaining int64 } }
		if err := json.Unmarshal(body, &decision); err != nil || len(decision.Limits) == 0 {
			t.Fatalf("%v: %s", err, body)
		}
		return otpLimit - decision.Limits[0].Remaining
	}
	awaitCharged(charged)
	got := charged()
	t.Logf("%d calls reset at once: %d of %d charged", sent, got, otpLimit)
	if got != otpLimit {
		t.Errorf("%d charged of %d: reset calls are free", got, otpLimit)
	}
}

// reset opens streams and resets each in the same write. It returns how many the server accepted before it closed the connection.
func reset(t *testing.T, conn net.Conn, body []byte, fields ...string) (sent int) {
	t.Helper()
	defer conn.Close()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	var out, block bytes.Buffer
	frames, encoder := http2.NewFramer(&out, conn), hpack.NewEncoder(&block)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(frames.WriteSettings())
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	for sent = range size(4_000, 20_000) {
		block.Reset()
		for field := range slices.Chunk(fields, 2) {
			must(encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
		}
		id := uint32(2*sent + 1)
		must(frames.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: block.Bytes(), EndStream: body == nil, EndHeaders: true,
		}))
		if body != nil {
			must(frames.WriteData(id, true, body))
		}
		must(frames.WriteRSTStream(id, http2.ErrCodeCancel))
		if sent%50 < 49 {
			continue
		}
		if _, err := conn.Write(out.Bytes()); errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			break // the server closed the connection
		} else if err != nil {
			t.Fatal(err)
		}
		out.Reset()
		time.Sleep(time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond) // let the server read before the connection ends
	return sent + 1
}
