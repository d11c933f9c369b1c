package retryafter_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/retryafter"
)

func TestReturnedAtOnce(t *testing.T) {
	t.Parallel()
	const busy, denied = http.StatusServiceUnavailable, http.StatusTooManyRequests
	type l = []string
	stream := func(r *http.Request) { r.GetBody = nil }
	key := func(r *http.Request) { r.Header.Set("Idempotency-Key", "7") }
	xKey := func(r *http.Request) { r.Header["X-Idempotency-Key"] = nil }
	bare := func(r *http.Request) { r.Body, r.GetBody = nil, nil }
	broken := func(r *http.Request) {
		r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("body not available") }
	}
	tests := map[string]struct {
		method, body string
		change       func(*http.Request)
		deadline     time.Duration
		status       int
		lines        []string
		retried      bool
	}{
		"denied":                        {status: denied, retried: true},
		"served":                        {status: http.StatusOK, lines: l{"Retry-After: 1"}},
		"redirected":                    {status: http.StatusMovedPermanently, lines: l{"Retry-After: 1"}},
		"failed":                        {status: http.StatusInternalServerError, lines: l{"Retry-After: 1"}},
		"an hour":                       {status: denied, lines: l{"Retry-After: 3600"}},
		"a bit too long":                {status: denied, lines: l{"Retry-After: 31"}},
		"for ever":                      {status: denied, lines: l{"Retry-After: 99999999999999999999"}},
		"deadline before":               {status: denied, lines: l{"Retry-After: 10"}, deadline: 9 * time.Second},
		"deadline at that time":         {status: denied, lines: l{"Retry-After: 10"}, deadline: 10 * time.Second},
		"deadline after":                {status: denied, lines: l{"Retry-After: 1"}, deadline: 2 * time.Second, retried: true},
		"deadline before its own":       {status: denied, deadline: 500 * time.Millisecond},
		"deadline after its own":        {status: denied, deadline: 501 * time.Millisecond, retried: true},
		"POST denied":                   {method: "POST", body: "tea", status: denied, retried: true},
		"POST denied, stream":           {method: "POST", body: "tea", change: stream, status: denied},
		"PUT denied, broken":            {method: http.MethodPut, body: "tea", change: broken, status: denied},
		"no method":                     {change: func(r *http.Request) { r.Method = "" }, status: busy, retried: true},
		"no body at all":                {method: http.MethodPost, change: bare, status: denied, retried: true},
		"POST unavailable":              {method: "POST", body: "tea", status: busy},
		"POST unavailable, Retry-After": {method: "POST", body: "tea", status: busy, lines: l{"Retry-After: 1"}, retried: true},
		"POST unavailable, unreadable":  {method: "POST", body: "tea", status: busy, lines: l{"Retry-After: x"}},
		"POST unavailable, policy":      {method: "POST", body: "tea", status: busy, lines: l{`RateLimit: "a";r=0;t=1`}},
		"POST unavailable, key":         {method: "POST", body: "tea", change: key, status: busy, retried: true},
		"POST unavailable, X key":       {method: "POST", body: "tea", change: xKey, status: busy, retried: true},
		"PATCH unavailable":             {method: http.MethodPatch, body: "tea", status: busy},
		"PUT unavailable":               {method: http.MethodPut, body: "tea", status: busy, retried: true},
		"PUT unavailable, stream":       {method: http.MethodPut, body: "tea", change: stream, status: busy},
		"DELETE unavailable":            {method: http.MethodDelete, status: busy, retried: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				transport := retryafter.New(api(func(r *http.Request) (*http.Response, error) {
					sent++
					if err := r.Context().Err(); err != nil {
						return nil, err
					}
					return respond(test.status, test.lines...), nil
				}), retryafter.Options{MaxAttempts: 2})
				req := request(t, test.method, test.body)
				if test.change != nil {
					test.change(req)
				}
				if test.deadline > 0 {
					ctx, cancel := context.WithTimeout(req.Context(), test.deadline)
					defer cancel()
					req = req.WithContext(ctx)
				}
				start := time.Now()
				if status, body := send(t, transport, req); status != test.status || body != "body" {
					t.Errorf("returned %d %q", status, body)
				}
				if elapsed := time.Since(start); !test.retried && (sent != 1 || elapsed != 0) || test.retried && sent != 2 {
					t.Errorf("sent %d times in %v", sent, elapsed)
				}
			})
		})
	}
}

// TestClientTimeout tests that a timeout of http.Client counts as a deadline.
func TestClientTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Timeout: 5 * time.Second, Transport: retryafter.New(
			api(func(*http.Request) (*http.Response, error) {
				return respond(http.StatusTooManyRequests, "Retry-After: 20"), nil
			}), retryafter.Options{})}
		start := time.Now()
		resp, err := client.Do(request(t, http.MethodGet, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests || time.Since(start) != 0 {
			t.Errorf("%d after %v", resp.StatusCode, time.Since(start))
		}
	})
}

func TestErrorsArePassedOn(t *testing.T) {
	t.Parallel()
	down := errors.New("network is down")
	sent := 0
	transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
		sent++
		return nil, down
	}), retryafter.Options{})
	resp, err := transport.RoundTrip(request(t, http.MethodGet, "")) //nolint:bodyclose // There is no body.
	if resp != nil || !errors.Is(err, down) || sent != 1 {
		t.Errorf("%v, %v, sent %d times", resp, err, sent)
	}
}

func TestCanceledDuringWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		denial := &closeCounter{Reader: strings.NewReader("slow down")}
		replay := &closeCounter{Reader: strings.NewReader("tea")}
		sent := 0
		transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
			sent++
			resp := respond(http.StatusTooManyRequests, "Retry-After: 20")
			resp.Body = denial
			return resp, nil
		}), retryafter.Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		shutdown := errors.New("shutting down")
		req := request(t, http.MethodPost, "tea").WithContext(ctx)
		req.GetBody = func() (io.ReadCloser, error) { return replay, nil }
		time.AfterFunc(7*time.Second, func() { cancel(shutdown) })
		start := time.Now()
		resp, err := transport.RoundTrip(req) //nolint:bodyclose // There is no body.
		if resp != nil || !errors.Is(err, shutdown) || sent != 1 {
			t.Errorf("%v, %v, sent %d times", resp, err, sent)
		}
		if elapsed := time.Since(start); elapsed != 7*time.Second {
			t.Errorf("returned after %v", elapsed)
		}
		if denial.closed != 1 || replay.closed != 1 || denial.Reader.(*strings.Reader).Len() != 0 {
			t.Errorf("the denial's body was closed %d times, the request's %d times", denial.closed, replay.closed)
		}
	})
}

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error {
	c.closed++
	return nil
}

// zeros is an endless body.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	z.read += len(p)
	return len(p), nil
}

// TestHostileBodies tests denials whose bodies are endless, stalled or nil.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	endless := &zeros{}
	for name, body := range map[string]func() io.ReadCloser{
		"endless": func() io.ReadCloser { return io.NopCloser(endless) },
		"stalled": func() io.ReadCloser { r, _ := io.Pipe(); return r },
		"none":    func() io.ReadCloser { return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			sent := 0
			transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
				if sent++; sent == 2 {
					return respond(http.StatusOK), nil
				}
				resp := respond(http.StatusTooManyRequests, "Retry-After: 20")
				resp.Body = body()
				return resp, nil
			}), retryafter.Options{})
			start := time.Now()
			if status, _ := send(t, transport, request(t, http.MethodGet, "")); status != http.StatusOK {
				t.Errorf("%s: %d", name, status)
			}
			if elapsed := time.Since(start); elapsed < 20*time.Second || elapsed > 25*time.Second {
				t.Errorf("%s: returned after %v", name, elapsed)
			}
		})
	}
	if endless.read > 100_000 {
		t.Errorf("%d bytes of an endless body were read", endless.read)
	}
}

// TestStalledServer tests real servers that never finish the body of a denial: closing the body must unblock its reader.
func TestStalledServer(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) == 2 {
					return
				}
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
				io.WriteString(w, "wait") //nolint:errcheck // The client sees a failure.
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			client := server.Client()
			client.Transport = retryafter.New(client.Transport, retryafter.Options{Backoff: time.Millisecond})
			defer client.CloseIdleConnections()
			resp, err := client.Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK || resp.Proto != name {
				t.Errorf("%d by %s", resp.StatusCode, resp.Proto)
			}
		})
	}
}

func TestRequestIsNotChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []*http.Request
		transport := retryafter.New(api(func(r *http.Request) (*http.Response, error) {
			if len(seen) > 0 {
				r.Header.Set("X-Signed", "by a careless transport below")
				r.URL.Host = "elsewhere.example"
			}
			seen = append(seen, r)
			return respond(http.StatusTooManyRequests), nil
		}), retryafter.Options{})
		req := request(t, http.MethodPost, "tea")
		body := req.Body
		send(t, transport, req)
		if req.Body != body || len(req.Header) != 0 || req.URL.Host != "api.example" {
			t.Errorf("the caller's request was changed to %+v", req)
		}
		if len(seen) != 4 {
			t.Fatalf("sent %d times", len(seen))
		}
		for i, r := range seen {
			if r.ContentLength != 3 || i > 0 && (r == req || r.Body == seen[i-1].Body) {
				t.Errorf("attempt %d has length %d, or shares its body", i+1, r.ContentLength)
			}
		}
	})
}
