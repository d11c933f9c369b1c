package listen

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *Listener {
	t.Helper()
	l, err := Listen(t.Context(), "listen.http", "127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	address := open(t).Addr().String()
	_, err := Listen(t.Context(), "listen.grpc", address, slog.Default())
	want := "listen.grpc: " + address + " is in use by another program: stop it, or write another port"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = Listen(t.Context(), "listen.grpc", "192.0.2.1:1", slog.Default())
	if err == nil || !strings.Contains(err.Error(), "write an address of this host") {
		t.Error(err)
	}
}

// TestConnectionCap checks that a connection over the limit of an address is closed immediately, and that closing another
// one, even twice, frees one place.
func TestConnectionCap(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.maxOpen = 2 * addressShare
	accepted := make(chan net.Conn, 8)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first := <-accepted
	dial()
	second := <-accepted
	rejected := dial()
	if _, err := rejected.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("over the limit: %v", err)
	}
	first.Close()
	first.Close()
	if n := l.Open(); n != 1 {
		t.Errorf("%d connections", n)
	}
	dial()
	(<-accepted).Close()
	second.Close()
	l.Close()
	<-accepted
}

// TestHalfClose checks that a client sees the end of an early response while the server still reads.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	l := open(t)
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_ = client.SetDeadline(time.Now().Add(10 * time.Second))
	half, ok := server.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		t.Fatal("half of the connection cannot be closed")
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := server.Read(make([]byte, 1)); err != nil || l.Open() != 1 {
		t.Errorf("%v, %d open", err, l.Open())
	}
}

// pipes is a listener for in-memory connections, for tests in a synctest bubble.
type pipes struct {
	conns chan net.Conn
	close func()
}

func newPipes() pipes {
	conns := make(chan net.Conn)
	return pipes{conns, sync.OnceFunc(func() { close(conns) })}
}

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error {
	p.close()
	return nil
}

func (p pipes) dial(context.Context, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours, nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowClients checks that connections with incomplete requests and idle connections are closed.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	for sent, wait := range map[string]time.Duration{
		"":                              headerTimeout,
		"GET / HTTP/1.1\r\nHost: x\r\n": headerTimeout,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n": callTimeout,
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                       idleTimeout,
	} {
		synctest.Test(t, func(t *testing.T) {
			server := NewHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusNoContent)
			}), nil, slog.New(slog.DiscardHandler))
			listener := newPipes()
			done := make(chan error)
			go func() { done <- Serve(server, listener) }()
			ours, theirs := net.Pipe()
			listener.conns <- theirs
			began := time.Now()
			go func() { _, _ = io.WriteString(ours, sent) }()
			_, _ = io.Copy(io.Discard, ours) // until the server closes
			if elapsed := time.Since(began); elapsed < wait || elapsed > wait+time.Second {
				t.Errorf("after %q: closed in %v, want %v", sent, elapsed, wait)
			}
			ours.Close()
			if err := server.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHeaderTooLarge(t *testing.T) {
	t.Parallel()
	server := NewHTTP(http.NotFoundHandler(), nil, slog.New(slog.DiscardHandler))
	l := open(t)
	done := make(chan error, 1)
	go func() { done <- Serve(server, l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", maxHeaderBytes+8<<10))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Error(res.Status)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// failRejected panics: servers that require no client certificates reject no clients.
func failRejected(net.Addr, error) { panic("a client was rejected") }

// TestProtocols checks that clients can use HTTP/2 and HTTP/1.1 over TLS.
func TestProtocols(t *testing.T) {
	t.Parallel()
	files := filesIn(t.TempDir())
	files.ClientCA = ""
	one := newPair(t, "one")
	one.write(t, files)
	certificates, err := Load(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := NewHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Proto", r.Proto)
	}), certificates.Config(failRejected), slog.New(slog.DiscardHandler))
	l := open(t)
	done := make(chan error, 1)
	go func() { done <- Serve(server, l) }()
	for want, h2 := range map[string]bool{"HTTP/2.0": true, "HTTP/1.1": false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: one.Pool}, ForceAttemptHTTP2: h2}
		res, err := (&http.Client{Transport: transport}).Get("https://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		transport.CloseIdleConnections()
		if got := res.Header.Get("Proto"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	files := filesIn(t.TempDir())
	files.ClientCA = ""
	one := newPair(t, "one")
	one.write(t, files)
	certificates, err := Load(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, with := range map[string]*tls.Config{"plain": nil, "TLS": certificates.Config(failRejected)} {
		known := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if connectionOf(ctx) == nil {
				t.Errorf("%s: no connection for a call", name)
			}
			return handle(ctx, request)
		}
		server := NewGRPC(with, encoding.GetCodecV2("proto"), nil, grpc.ChainUnaryInterceptor(known))
		healthv1.RegisterHealthServer(server, health.NewServer())
		l := open(t)
		done := make(chan error, 1)
		go func() { done <- server.Serve(l) }()
		creds := insecure.NewCredentials()
		if with != nil {
			creds = credentials.NewTLS(&tls.Config{RootCAs: one.Pool})
		}
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		client := healthv1.NewHealthClient(conn)
		check := func(ctx context.Context, service string, want codes.Code) {
			t.Helper()
			_, err := client.Check(ctx, &healthv1.HealthCheckRequest{Service: service})
			if got := status.Code(err); got != want {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		check(t.Context(), "", codes.OK)
		check(t.Context(), strings.Repeat("x", maxMessage-100), codes.NotFound)
		check(t.Context(), strings.Repeat("x", maxMessage), codes.ResourceExhausted)
		check(metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", maxHeaderBytes)), "", codes.Internal)
		conn.Close()
		server.GracefulStop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if l.Open() != 0 || l.unread.Load() != 0 {
			t.Errorf("%s: %d connections and %d bytes are left", name, l.Open(), l.unread.Load())
		}
	}
}
