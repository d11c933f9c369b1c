package retryafter_test

import (
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/retryafter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is a transport that acts as a server. It gets requests one after the other.
type api func(*http.Request) (*http.Response, error)

func (a api) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// respond returns a response with header lines such as "Retry-After: 1".
func respond(status int, lines ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("body"))}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		resp.Header.Add(name, value)
	}
	return resp
}

func request(t testing.TB, method, body string) *http.Request {
	t.Helper()
	var reader io.Reader = http.NoBody
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://api.example/orders", reader)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// send sends a request and returns the final status and body.
func send(t testing.TB, transport http.RoundTripper, req *http.Request) (status int, body string) {
	t.Helper()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

func TestDeniedUntilServed(t *testing.T) {
	t.Parallel()
	var bodies []string // the handler is not called concurrently
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.Method+" "+r.Header.Get("X-Order")+" "+string(body))
		if len(bodies) < 4 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, strings.Repeat("slow down ", 1000)) //nolint:errcheck // The client sees a failure.
			return
		}
		io.WriteString(w, "served") //nolint:errcheck // The client sees a failure.
	}))
	defer server.Close()

	var connections atomic.Int32
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if !got.Reused {
			connections.Add(1)
		}
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("one tea"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Order", "7")
	next := &http.Transport{}
	client := &http.Client{Transport: retryafter.New(next, retryafter.Options{Backoff: time.Millisecond})}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(body) != "served" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	if want := slices.Repeat([]string{"POST 7 one tea"}, 4); !slices.Equal(bodies, want) {
		t.Errorf("the server got %q", bodies)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1 that is reused", n)
	}
}

// TestWaits sends requests to an API that always denies, and checks the times between attempts.
func TestWaits(t *testing.T) {
	t.Parallel()
	const s, ms = time.Second, time.Millisecond
	type span struct{ lowest, highest time.Duration }
	type options = retryafter.Options
	backoff := []span{{500 * ms, 1 * s}, {1 * s, 2 * s}, {2 * s, 4 * s}}
	always := func(lowest, highest time.Duration) []span { return slices.Repeat([]span{{lowest, highest}}, 3) }
	tests := map[string]struct {
		options options
		status  int
		lines   []string
		want    []span
	}{
		"backoff":               {want: backoff},
		"backoff, 503":          {status: 503, want: backoff},
		"backoff, negative":     {options: options{MaxWait: -1, MaxAttempts: -1, Backoff: -1}, want: backoff},
		"backoff, invalid":      {lines: []string{"Retry-After: -1"}, want: backoff},
		"backoff, capped":       {options: options{MaxWait: 3 * s}, want: []span{backoff[0], backoff[1], {1500 * ms, 3 * s}}},
		"backoff, over MaxWait": {options: options{MaxWait: 1 * s, Backoff: time.Hour}, want: always(500*ms, 1*s)},
		"Retry-After":           {lines: []string{"Retry-After: 20"}, want: always(20*s, 25*s)},
		"Retry-After, 503":      {status: 503, lines: []string{"Retry-After: 20"}, want: always(20*s, 25*s)},
		"Retry-After, short":    {lines: []string{"Retry-After: 1"}, want: []span{{s, 1500 * ms}, {s, 2 * s}, {s, 3 * s}}},
		"Retry-After, 0":        {lines: []string{"Retry-After: 0"}, want: []span{{0, 500 * ms}, {0, 1 * s}, {0, 2 * s}}},
		"RateLimit":             {lines: []string{`RateLimit: "a";r=0;t=8`}, want: always(8*s, 10*s)},
		"maximum wait":          {lines: []string{"Retry-After: 30"}, want: always(30*s, 37500*ms)},
		"unlimited MaxWait": {
			options: options{MaxWait: math.MaxInt64, MaxAttempts: 2},
			lines:   []string{"Retry-After: 2000000000"},
			want:    []span{{2e9 * s, 2.5e9 * s}},
		},
		"over forever": {options: options{MaxWait: math.MaxInt64}, lines: []string{"Retry-After: 3000000000"}},
		"attempts":     {options: options{MaxAttempts: 2}, want: backoff[:1]},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if test.status == 0 {
					test.status = http.StatusTooManyRequests
				}
				var sent []time.Time
				var retries []retryafter.Retry
				test.options.OnRetry = func(r retryafter.Retry) { retries = append(retries, r) }
				transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
					sent = append(sent, time.Now())
					return respond(test.status, test.lines...), nil
				}), test.options)
				req := request(t, http.MethodGet, "")
				if status, body := send(t, transport, req); status != test.status || body != "body" {
					t.Errorf("returned %d %q", status, body)
				}
				if len(sent) != len(test.want)+1 || len(retries) != len(test.want) {
					t.Fatalf("sent %d times, OnRetry called %d times, want %d", len(sent), len(retries), len(test.want))
				}
				for i, want := range test.want {
					wait := sent[i+1].Sub(sent[i])
					if wait < want.lowest || wait > want.highest {
						t.Errorf("wait %d is %v, want %v to %v", i+1, wait, want.lowest, want.highest)
					}
					r := retries[i]
					if r.Wait != wait || r.Attempt != i+1 || r.Status != test.status || r.Request != req {
						t.Errorf("OnRetry got %+v, waited %v", r, wait)
					}
				}
			})
		})
	}
}

func TestOnRetryNamesTheHeader(t *testing.T) {
	t.Parallel()
	for header, lines := range map[string][]string{
		"":                  nil,
		"Retry-After":       {"Retry-After: 1"},
		"RateLimit":         {`RateLimit: "a";r=0;t=1`},
		"X-RateLimit-Reset": {"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1"},
		"RateLimit-Reset":   {"RateLimit-Remaining: 0", "RateLimit-Reset: 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var headers []string
			transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
				return respond(http.StatusTooManyRequests, lines...), nil
			}), retryafter.Options{MaxAttempts: 2, OnRetry: func(r retryafter.Retry) { headers = append(headers, r.Header) }})
			send(t, transport, request(t, http.MethodGet, ""))
			if !slices.Equal(headers, []string{header}) {
				t.Errorf("OnRetry got %q, want %q", headers, header)
			}
		})
	}
}

// TestRetriesAreNeitherEarlyNorTogether tests the retries of many clients that are denied at the same time.
func TestRetriesAreNeitherEarlyNorTogether(t *testing.T) {
	t.Parallel()
	for _, requested := range []int{-1, 0, 1, 2, 10, 30} {
		synctest.Test(t, func(t *testing.T) {
			const clients = 500
			tenths := map[time.Duration]int{} // retries in each tenth of the jitter's range
			minimum, spread := time.Duration(requested)*time.Second, max(time.Duration(requested)*time.Second/4, 500*time.Millisecond)
			lines := []string{"Retry-After: " + strconv.Itoa(requested)}
			if requested < 0 {
				minimum, lines = spread, nil
			}
			for range clients {
				// Each client has its own transport.
				var waited time.Duration
				transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
					return respond(http.StatusTooManyRequests, lines...), nil
				}), retryafter.Options{MaxAttempts: 2, OnRetry: func(r retryafter.Retry) { waited = r.Wait }})
				before := time.Now()
				send(t, transport, request(t, http.MethodGet, ""))
				if after := time.Since(before); after < minimum || after > minimum+spread || after != waited {
					t.Fatalf("Retry-After %d: retried after %v", requested, after)
				}
				tenths[(waited-minimum)*10/(spread+1)]++
			}
			if len(tenths) != 10 || slices.Max(slices.Collect(maps.Values(tenths))) > clients/4 {
				t.Errorf("Retry-After %d: retries by tenth %v", requested, tenths)
			}
		})
	}
}

// TestBudgetIsShared sends requests of 100 callers to an API that denies all of them, for a minute.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const callers, each = 100, 60
		var sent, retries atomic.Int64
		transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
			sent.Add(1)
			return respond(http.StatusTooManyRequests), nil
		}), retryafter.Options{OnRetry: func(retryafter.Retry) { retries.Add(1) }})
		start := time.Now()
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				for range each {
					send(t, transport, request(t, http.MethodGet, ""))
					time.Sleep(time.Second)
				}
			})
		}
		group.Wait()
		elapsed := time.Since(start)
		limit := 10 + callers*each/10 + int64(elapsed/time.Second)
		if n := retries.Load(); n > limit || n < limit*9/10 {
			t.Errorf("%d retries of %d requests in %v, want nearly %d", n, callers*each, elapsed, limit)
		}
		if n := sent.Load(); n != callers*each+retries.Load() {
			t.Errorf("sent %d times, OnRetry called %d times", n, retries.Load())
		}
	})
}

type idle struct {
	api
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

func TestCloseIdleConnections(t *testing.T) {
	t.Parallel()
	next := &idle{}
	(&http.Client{Transport: retryafter.New(next, retryafter.Options{})}).CloseIdleConnections()
	if next.closed != 1 {
		t.Errorf("closed %d times", next.closed)
	}
	retryafter.New(next.api, retryafter.Options{}).CloseIdleConnections() // api has no such method
}

func TestNilIsTheDefaultTransport(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client := &http.Client{Transport: retryafter.New(nil, retryafter.Options{})}
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Error(resp.Status)
	}
}

// BenchmarkServed measures the overhead for a request that is not denied.
func BenchmarkServed(b *testing.B) {
	resp := &http.Response{StatusCode: http.StatusOK}
	next := api(func(*http.Request) (*http.Response, error) { return resp, nil })
	req := request(b, http.MethodGet, "")
	for name, transport := range map[string]http.RoundTripper{
		"without": next,
		"with":    retryafter.New(next, retryafter.Options{}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := transport.RoundTrip(req); err != nil { //nolint:bodyclose // There is no body.
						b.Error(err)
					}
				}
			})
		})
	}
}
