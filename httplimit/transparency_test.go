package httplimit_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
)

// server starts an HTTP server with the limit in front of a handler.
func server(t *testing.T, limit headgate.Limit, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	w := newWorld(t, headgate.Rule{ID: "a", By: []string{"ip"}, Limit: limit})
	s := httptest.NewServer(httplimit.New(w.limiter, httplimit.Options{})(h))
	t.Cleanup(s.Close)
	return s
}

// fetch passes a response to look and closes it.
func fetch(t *testing.T, s *httptest.Server, look func(*http.Response)) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.Header.Get("RateLimit") == "" {
		t.Errorf("headers %v", response.Header)
	}
	look(response)
}

// TestSameWriter tests that the handler gets the server's own ResponseWriter, which the tests below rely on.
func TestSameWriter(t *testing.T) {
	t.Parallel()
	var got http.ResponseWriter
	w := newWorld(t, headgate.Rule{ID: "a", By: []string{"ip"}, Limit: headgate.PerMinute(10)})
	h := httplimit.New(w.limiter, httplimit.Options{})(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { got = w }))
	if want := serve(h, get("/")); got != want {
		t.Errorf("the handler got a %T", got)
	}
}

func TestStreaming(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	s := server(t, headgate.PerMinute(10), func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range []string{"one\n", "two\n"} {
			_, _ = io.WriteString(w, line)
			w.(http.Flusher).Flush()
			<-read // wait until the client has read the first part
		}
		if _, ok := w.(io.ReaderFrom); !ok {
			t.Error("the writer is not an io.ReaderFrom")
		}
	})
	fetch(t, s, func(response *http.Response) {
		lines := bufio.NewReader(response.Body)
		for _, want := range []string{"one\n", "two\n"} {
			if line, err := lines.ReadString('\n'); line != want || err != nil {
				t.Errorf("read %q, %v", line, err)
			}
			read <- struct{}{}
		}
	})
}

func TestTrailers(t *testing.T) {
	t.Parallel()
	s := server(t, headgate.PerMinute(10), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "42")
	})
	fetch(t, s, func(response *http.Response) {
		if body, err := io.ReadAll(response.Body); string(body) != "body" || err != nil || response.Trailer.Get("X-Sum") != "42" {
			t.Errorf("body %q, %v, trailers %v", body, err, response.Trailer)
		}
	})
}

func TestResponseController(t *testing.T) {
	t.Parallel()
	s := server(t, headgate.PerMinute(10), func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		for what, err := range map[string]error{
			"read deadline":  c.SetReadDeadline(time.Now().Add(time.Minute)),
			"write deadline": c.SetWriteDeadline(time.Now().Add(time.Minute)),
			"full duplex":    c.EnableFullDuplex(),
			"flush":          c.Flush(),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	fetch(t, s, func(*http.Response) {})
}

func TestHijack(t *testing.T) {
	t.Parallel()
	s := server(t, headgate.PerMinute(10), func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, "echo "+line)
	})
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhi\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "echo hi\n" {
		t.Errorf("read %q, %v", line, err)
	}
}

// TestHeadersOnTheWire tests that no header is written twice in two spellings.
func TestHeadersOnTheWire(t *testing.T) {
	t.Parallel()
	s := server(t, headgate.PerMinute(10), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "mine")
	})
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	raw, err := io.ReadAll(conn)
	if text := strings.ToLower(string(raw)); err != nil || strings.Count(text, "\nx-ratelimit-limit: ") != 1 ||
		!strings.Contains(text, "\nx-ratelimit-limit: mine\r\n") {
		t.Errorf("%v\n%s", err, raw)
	}
}

// watched reports requests that are to be delayed.
type watched struct {
	*headgate.Limiter
	held chan<- struct{}
}

func (c watched) Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	d, err := c.Limiter.Begin(ctx, req)
	if d.Delay > 0 {
		c.held <- struct{}{}
	}
	return d, err
}

// TestClientDisconnects tests over a real connection that the delay ends when the client disconnects.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "even", By: []string{"ip"}, MaxDelay: 24 * time.Hour, Limit: headgate.Limit{
		Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Hour,
	}})
	held, denied := make(chan struct{}), make(chan time.Duration, 1)
	s := httptest.NewServer(httplimit.New(watched{w.limiter, held}, httplimit.Options{
		OnDenied: func(_ http.ResponseWriter, _ *http.Request, d headgate.Decision) { denied <- d.RetryAfter },
	})(hello))
	defer s.Close()
	fetchAnd := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			return err
		}
		response, err := s.Client().Do(r)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	if err := fetchAnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := fetchAnd(ctx); err == nil {
			t.Error("a delayed request got a response")
		}
	})
	<-held
	cancel()
	group.Wait()
	if left := <-denied; left <= 0 || left > time.Hour {
		t.Errorf("RetryAfter %s", left)
	}
}

// TestManyAtOnce tests that exactly as many concurrent requests are allowed as the limit allows.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "a", By: []string{"ip"}, Limit: headgate.PerMinute(50)})
	h := httplimit.New(w.limiter, httplimit.Options{OlderDraft: true})(hello)
	var allowed, denied atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				switch response := serve(h, get("/")); response.Code {
				case http.StatusOK:
					allowed.Add(1)
				case http.StatusTooManyRequests:
					denied.Add(1)
				}
			}
		})
	}
	group.Wait()
	if allowed.Load() != 50 || denied.Load() != 350 {
		t.Errorf("%d allowed, %d denied", allowed.Load(), denied.Load())
	}
}

// TestSharedBetweenHandlers tests that all handlers of one middleware share MaxWaiters.
func TestSharedBetweenHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := httplimit.New(evenly(t, time.Minute), httplimit.Options{MaxWaiters: 1})
		a, b := limit(hello), limit(hello)
		serve(a, get("/"))
		var group sync.WaitGroup
		group.Go(func() { serve(a, get("/")) })
		synctest.Wait()
		if w := serve(b, get("/")); w.Code != http.StatusTooManyRequests {
			t.Errorf("status %d", w.Code)
		}
		group.Wait()
	})
}

// TestDefaultIdentity tests that New can ignore the error of a Resolver that trusts no proxy.
func TestDefaultIdentity(t *testing.T) {
	t.Parallel()
	if resolver, err := identity.New(identity.Options{Log: quiet()}); resolver == nil || err != nil {
		t.Errorf("%v, %v", resolver, err)
	}
}
