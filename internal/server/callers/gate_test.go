package callers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// attempt is a call and the reason for its rejection, or "".
type attempt struct {
	tokens      []string
	certificate *x509.Certificate
	want        string
}

func certificate(dns, uri string) *x509.Certificate {
	c := &x509.Certificate{DNSNames: []string{"other.example", dns}}
	c.Subject.CommonName = "gateway.example"
	if u, err := url.Parse(uri); err == nil && uri != "" {
		c.URIs = []*url.URL{u}
	}
	return c
}

func known(token string) bool { return token == "right" }

// TestGate checks that HTTP and gRPC accept the same callers, that the token is not passed on, and that health checks need no
// token.
func TestGate(t *testing.T) {
	t.Parallel()
	names := []string{"gateway.example", "spiffe://example/gateway"}
	named, uri, unknown := certificate("GATEWAY.example", ""), certificate("", "spiffe://example/gateway"), certificate("gateway.example.evil", "")
	swapped := certificate("spiffe://example/gateway", "gateway.example")
	for name, c := range map[string]struct {
		options  Options
		attempts []attempt
	}{
		"open": {Options{}, []attempt{{}, {tokens: []string{"wrong"}}, {certificate: unknown}}},
		"tokens": {Options{Token: known}, []attempt{
			{tokens: []string{"right"}},
			{want: noToken},
			{tokens: []string{""}, want: noToken},
			{tokens: []string{"wrong"}, want: unknownToken},
			{tokens: []string{" right"}, want: unknownToken},
			{tokens: []string{"right", "right"}, want: unknownToken},
			{tokens: []string{"wrong", "right"}, want: unknownToken},
			{certificate: named, want: noToken},
		}},
		"names": {Options{Names: names}, []attempt{
			{certificate: named},
			{certificate: uri},
			{certificate: unknown, want: unknownName},
			{certificate: swapped, want: unknownName},
			{want: unknownName},
			{tokens: []string{"right"}, want: unknownName},
		}},
		"both": {Options{Token: known, Names: names}, []attempt{
			{tokens: []string{"right"}, certificate: uri},
			{tokens: []string{"right"}, certificate: unknown, want: unknownName},
			{certificate: uri, want: noToken},
		}},
	} {
		rejected := map[string]int{}
		c.options.Rejected = func(listener, reason string) { rejected[listener+" "+reason]++ }
		var log bytes.Buffer
		c.options.Log = slog.New(slog.NewTextHandler(&log, nil))
		g := New(c.options)
		want := map[string]int{}
		for i, a := range c.attempts {
			if got := overHTTP(t, g, a); got != a.want {
				t.Errorf("%s, attempt %d over HTTP: %q, want %q", name, i, got, a.want)
			}
			if got := overGRPC(g, "/headgate.check.v1.CheckService/Check", a); got != a.want {
				t.Errorf("%s, attempt %d over gRPC: %q, want %q", name, i, got, a.want)
			}
			if got := overGRPC(g, "/grpc.health.v1.Health/Check", a); got != "" {
				t.Errorf("%s, attempt %d of a health check: %q", name, i, got)
			}
			if a.want != "" {
				want["http "+a.want]++
				want["grpc "+a.want]++
			}
		}
		total := 0
		for key, n := range want {
			total += n
			if rejected[key] != n {
				t.Errorf("%s: %s counted %d times, want %d", name, key, rejected[key], n)
			}
		}
		if last := g.Last(); last.Count != int64(total) || total > 0 && (last.Peer != "192.0.2.9" || last.Listener != "grpc") {
			t.Errorf("%s: %+v", name, last)
		}
		if lines := strings.Count(log.String(), "\n"); lines != len(want) {
			t.Errorf("%s: %d log lines for %d kinds of rejections of one peer:\n%s", name, lines, len(want), log.String())
		}
	}
}

func overHTTP(t *testing.T, g *Gate, a attempt) (reason string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/v1/authorize", http.NoBody)
	r.RemoteAddr = "192.0.2.9:1234"
	r.Header[Header] = a.tokens
	if a.certificate != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{a.certificate}}
	}
	w := httptest.NewRecorder()
	g.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header[Header]; ok {
			t.Error("the token was passed on")
		}
	})).ServeHTTP(w, r)
	for reason, detail := range details {
		if strings.Contains(w.Body.String(), detail) && w.Code == map[bool]int{true: 403, false: 401}[reason == unknownName] {
			return reason
		}
	}
	if w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	return ""
}

func overGRPC(g *Gate, method string, a attempt) (reason string) {
	from := &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 1234}}
	if a.certificate != nil {
		from.AuthInfo = credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{a.certificate}}}
	}
	through := errors.New("through")
	next := func(ctx context.Context, _ *tap.Info) (context.Context, error) { return ctx, through }
	_, err := g.GRPC(next)(peer.NewContext(context.Background(), from),
		&tap.Info{FullMethodName: method, Header: metadata.MD{metadataKey: a.tokens}})
	if errors.Is(err, through) {
		return ""
	}
	for reason, detail := range details {
		code := codes.Unauthenticated
		if reason == unknownName {
			code = codes.PermissionDenied
		}
		if s := status.Convert(err); s.Message() == detail && s.Code() == code {
			return reason
		}
	}
	return err.Error()
}

// TestGateAllocates checks that accepting a call allocates nothing.
func TestGateAllocates(t *testing.T) {
	g := New(Options{Token: known})
	next := func(ctx context.Context, _ *tap.Info) (context.Context, error) { return ctx, nil }
	gate, call := g.GRPC(next), &tap.Info{FullMethodName: "/x", Header: metadata.MD{metadataKey: {"right"}}}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}})
	if n := testing.AllocsPerRun(1_000, func() { _, _ = gate(ctx, call) }); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}

// stream is a stream on which every RecvMsg succeeds immediately.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *stream) Context() context.Context { return s.ctx }
func (s *stream) RecvMsg(any) error        { return nil }

// TestStream checks that a stream ends with the next message after its token was revoked.
func TestStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		valid := true
		g := New(Options{Token: func(string) bool { return valid }, Log: slog.New(slog.DiscardHandler)})
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{metadataKey: {"token"}})
		err := g.Stream(nil, &stream{ctx: ctx}, nil, func(_ any, s grpc.ServerStream) error {
			for range 5 {
				if err := s.RecvMsg(nil); err != nil {
					t.Errorf("a stream with a token ended: %v", err)
				}
				time.Sleep(verifyInterval)
			}
			valid = false
			return s.RecvMsg(nil)
		})
		if status.Code(err) != codes.Unauthenticated || g.Last().Count != 1 {
			t.Errorf("%v, %+v", err, g.Last())
		}
	})
}
