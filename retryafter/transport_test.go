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

// api is a transport that stands for a server; it sees requests as the server would, one after the other.
type api func(*http.Request) (*http.Response, error)

func (a api) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// answer is a response with header lines such as "Retry-After: 1".
func answer(status int, lines ...string) *http.Response {
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

// send returns what came back at last.
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
	var bodies []string // the handler is called once at a time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.Method+" "+r.Header.Get("X-Order")+" "+string(body))
		if len(bodies) < 4 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, strings.Repeat("slow down ", 1000)) //nolint:errcheck // seen by the client
			return
		}
		io.WriteString(w, "served") //nolint:errcheck // seen by the client
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
		t.Errorf("%d connections, want one that is used again", n)
	}
}

// TestWaits sends requests to an API that always denies, and looks at the times between them.
func TestWaits(t *testing.T) {
	t.Parallel()
	const s, ms = time.Second, time.Millisecond
	type span struct{ least, most time.Duration }
	type options = retryafter.Options
	own := []span{{500 * ms, 1 * s}, {1 * s, 2 * s}, {2 * s, 4 * s}}
	always := func(least, most time.Duration) []span { return slices.Repeat([]span{{least, most}}, 3) }
	tests := map[string]struct {
		options options
		status  int
		lines   []string
		want    []span
	}{
		"own":               {want: own},
		"own, unavailable":  {status: 503, want: own},
		"own, negative":     {options: options{MaxWait: -1, MaxAttempts: -1, Backoff: -1}, want: own},
		"own, unreadable":   {lines: []string{"Retry-After: -1"}, want: own},
		"own, up to half":   {options: options{MaxWait: 3 * s}, want: []span{own[0], own[1], {1500 * ms, 3 * s}}},
		"own, out of range": {options: options{MaxWait: 1 * s, Backoff: time.Hour}, want: always(500*ms, 1*s)},
		"told":              {lines: []string{"Retry-After: 20"}, want: always(20*s, 25*s)},
		"told, unavailable": {status: 503, lines: []string{"Retry-After: 20"}, want: always(20*s, 25*s)},
		"told, shortly":     {lines: []string{"Retry-After: 1"}, want: []span{{s, 1500 * ms}, {s, 2 * s}, {s, 3 * s}}},
		"told, now":         {lines: []string{"Retry-After: 0"}, want: []span{{0, 500 * ms}, {0, 1 * s}, {0, 2 * s}}},
		"told by policy":    {lines: []string{`RateLimit: "a";r=0;t=8`}, want: always(8*s, 10*s)},
		"as long as it may": {lines: []string{"Retry-After: 30"}, want: always(30*s, 37500*ms)},
		"no end to patience": {
			options: options{MaxWait: math.MaxInt64, MaxAttempts: 2},
			lines:   []string{"Retry-After: 2000000000"},
			want:    []span{{2e9 * s, 2.5e9 * s}},
		},
		"but one":  {options: options{MaxWait: math.MaxInt64}, lines: []string{"Retry-After: 3000000000"}},
		"attempts": {options: options{MaxAttempts: 2}, want: own[:1]},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if test.status == 0 {
					test.status = http.StatusTooManyRequests
				}
				var sent []time.Time
				var told []retryafter.Retry
				test.options.OnRetry = func(r retryafter.Retry) { told = append(told, r) }
				transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
					sent = append(sent, time.Now())
					return answer(test.status, test.lines...), nil
				}), test.options)
				req := request(t, http.MethodGet, "")
				if status, body := send(t, transport, req); status != test.status || body != "body" {
					t.Errorf("returned %d %q", status, body)
				}
				if len(sent) != len(test.want)+1 || len(told) != len(test.want) {
					t.Fatalf("sent %d times, told of %d retries, want %d", len(sent), len(told), len(test.want))
				}
				for i, want := range test.want {
					wait := sent[i+1].Sub(sent[i])
					if wait < want.least || wait > want.most {
						t.Errorf("wait %d is %v, want %v to %v", i+1, wait, want.least, want.most)
					}
					r := told[i]
					if r.Wait != wait || r.Attempt != i+1 || r.Status != test.status || r.Request != req {
						t.Errorf("told of %+v, waited %v", r, wait)
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
			var told []string
			transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
				return answer(http.StatusTooManyRequests, lines...), nil
			}), retryafter.Options{MaxAttempts: 2, OnRetry: func(r retryafter.Retry) { told = append(told, r.Header) }})
			send(t, transport, request(t, http.MethodGet, ""))
			if !slices.Equal(told, []string{header}) {
				t.Errorf("told of %q, want %q", told, header)
			}
		})
	}
}

// TestNobodyComesEarlyOrTogether has many clients denied at one instant.
func TestNobodyComesEarlyOrTogether(t *testing.T) {
	t.Parallel()
	for _, told := range []int{-1, 0, 1, 2, 10, 30} {
		synctest.Test(t, func(t *testing.T) {
			const clients = 500
			tenths := map[time.Duration]int{} // of the time in which they come back
			least, spread := time.Duration(told)*time.Second, max(time.Duration(told)*time.Second/4, 500*time.Millisecond)
			lines := []string{"Retry-After: " + strconv.Itoa(told)}
			if told < 0 {
				least, lines = spread, nil
			}
			for range clients {
				// Each is a program of its own.
				var waited time.Duration
				transport := retryafter.New(api(func(*http.Request) (*http.Response, error) {
					return answer(http.StatusTooManyRequests, lines...), nil
				}), retryafter.Options{MaxAttempts: 2, OnRetry: func(r retryafter.Retry) { waited = r.Wait }})
				before := time.Now()
				send(t, transport, request(t, http.MethodGet, ""))
				if after := time.Since(before); after < least || after > least+spread || after != waited {
					t.Fatalf("told %d s, came back after %v", told, after)
				}
				tenths[(waited-least)*10/(spread+1)]++
			}
			if len(tenths) != 10 || slices.Max(slices.Collect(maps.Values(tenths))) > clients/4 {
				t.Errorf("told %d s, came back in tenths %v", told, tenths)
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
			return answer(http.StatusTooManyRequests), nil
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
		took := time.Since(start)
		most := 10 + callers*each/10 + int64(took/time.Second)
		if n := retries.Load(); n > most || n < most*9/10 {
			t.Errorf("%d retries of %d requests in %v, want nearly %d", n, callers*each, took, most)
		}
		if n := sent.Load(); n != callers*each+retries.Load() {
			t.Errorf("sent %d times, told of %d retries", n, retries.Load())
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
	retryafter.New(next.api, retryafter.Options{}).CloseIdleConnections() // has no such method
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

// BenchmarkServed is what the transport adds to a request that is not denied.
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
					if _, err := transport.RoundTrip(req); err != nil { //nolint:bodyclose // there is none
						b.Error(err)
					}
				}
			})
		})
	}
}
