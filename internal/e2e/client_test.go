package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// client sends requests through a gateway, from its own address.
type client struct {
	t       testing.TB
	gateway string
	http    *http.Client
	headers http.Header // sent with each request
}

func newClient(t testing.TB, gateway, ip string) *client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: workers}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, gateway: gateway, http: &http.Client{Transport: transport, Timeout: timeout}}
}

// result is the response that a client received.
type result struct {
	status int
	header http.Header
	body   string
}

// counted reports whether Headgate decided the request and a limit applied.
func (a result) counted() bool { return a.header.Get("RateLimit") != "" }

// send sends a request. A request without a response fails the test. It may be called by any goroutine.
func (c *client) send(method, path, body string) result {
	a, err := c.try(method, path, body)
	if err != nil {
		c.t.Error(err)
	}
	return a
}

// try sends a request.
func (c *client) try(method, path, body string) (result, error) {
	request, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.gateway+path, strings.NewReader(body))
	if err != nil {
		return result{}, err
	}
	if c.headers != nil {
		request.Header = c.headers.Clone()
	}
	response, err := c.http.Do(request)
	if err != nil {
		return result{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return result{response.StatusCode, response.Header, string(text)}, err
}

// expectAllowed sends a request and checks that the application responds, and the headers of the limit.
func (c *client) expectAllowed(method, path, rule string, limit, remaining int) {
	c.t.Helper()
	body := ""
	if method == http.MethodPost {
		body = strings.Repeat("body ", 10_000)
	}
	got := c.send(method, path, body)
	if want := "application: " + method + " " + path + " " + body; got.status != http.StatusOK || got.body != want {
		c.t.Errorf("%s %s: %d, %.200q, want 200, %.200q", method, path, got.status, got.body, want)
	}
	got.checkHeaders(c.t, rule, limit, remaining)
	if retryAfter := got.header.Get("Retry-After"); retryAfter != "" {
		c.t.Errorf("%s %s is allowed, with a Retry-After of %s", method, path, retryAfter)
	}
}

// checkHeaders checks the headers of a limit.
func (a result) checkHeaders(t testing.TB, rule string, limit, remaining int) {
	t.Helper()
	for name, want := range map[string]string{
		"RateLimit-Policy":      strconv.Quote(rule) + ";q=" + strconv.Itoa(limit) + ";w=60",
		"X-RateLimit-Limit":     strconv.Itoa(limit),
		"X-RateLimit-Remaining": strconv.Itoa(remaining),
	} {
		if got := a.header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s is %q, want %q", rule, name, got, want)
		}
	}
	state, want := a.header.Values("RateLimit"), strconv.Quote(rule)+";r="+strconv.Itoa(remaining)+";t="
	if len(state) != 1 || !strings.HasPrefix(state[0], want) {
		t.Errorf("%s: RateLimit is %q, want %q", rule, state, want)
	}
	reset, err := strconv.ParseInt(a.header.Get("X-RateLimit-Reset"), 10, 64)
	if until := time.Until(time.Unix(reset, 0)); err != nil || until <= 0 || until > 2*time.Minute {
		t.Errorf("%s: X-RateLimit-Reset is in %v: %v", rule, until, err)
	}
}

// expectDenied sends a request and checks that it is denied with a 429, a Retry-After and a problem document.
func (c *client) expectDenied(g gateway, method, path, rule string, limit int) {
	c.t.Helper()
	got := c.send(method, path, "")
	kind := got.header.Get("Content-Type")
	if got.status != http.StatusTooManyRequests || kind != "application/problem+json" {
		c.t.Errorf("%s %s: %d, %s, want 429, application/problem+json", method, path, got.status, kind)
	}
	got.checkHeaders(c.t, rule, limit, 0)
	retryAfter, err := strconv.Atoi(got.header.Get("Retry-After"))
	if err != nil || retryAfter < 1 || retryAfter > 60/limit+1 {
		c.t.Errorf("%s %s: Retry-After is %d: %v", method, path, retryAfter, err)
	}
	var problem struct {
		Type, Error, Rule string
		Status            int
		RetryAfter        int `json:"retry_after"`
	}
	if err := json.Unmarshal([]byte(got.body), &problem); err != nil {
		c.t.Errorf("%.1000q: %v", got.body, err)
	}
	if problem.Status != got.status || problem.Error != "rate_limit_exceeded" ||
		!strings.HasSuffix(problem.Type, "#quota-exceeded") {
		c.t.Errorf("%+v", problem)
	}
	if !g.ownBody && (problem.Rule != rule || problem.RetryAfter != retryAfter) {
		c.t.Errorf("%+v, which is not from Headgate", problem)
	}
}

// workers is the number of concurrent requests under load.
const workers = 4

// load is a client that sends GET / continuously.
type load struct {
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	results []timed
}

// timed is a result with the time and duration of its request.
type timed struct {
	result
	start   time.Time
	elapsed time.Duration
}

func newLoad(c *client) *load {
	ctx, stop := context.WithCancel(c.t.Context())
	l := &load{stop: stop}
	c.t.Cleanup(func() { l.end() })
	for range workers {
		l.ended.Go(func() {
			for {
				start := time.Now()
				a := c.send(http.MethodGet, "/", "")
				l.mu.Lock()
				l.results = append(l.results, timed{a, start, time.Since(start)})
				l.mu.Unlock()
				select {
				case <-ctx.Done():
					return
				case <-time.After(2 * time.Millisecond):
				}
			}
		})
	}
	return l
}

// since returns the results of requests sent after a time.
func (l *load) since(then time.Time) (results []timed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.results {
		if a.start.After(then) {
			results = append(results, a)
		}
	}
	return results
}

// next returns results of requests sent from now on.
func (l *load) next(t testing.TB) (results []timed) {
	t.Helper()
	now := time.Now()
	eventually(t, "results", func() bool {
		results = l.since(now)
		return len(results) >= 4*workers
	})
	return results
}

// end stops the load and returns all results.
func (l *load) end() []timed {
	l.stop()
	l.ended.Wait()
	return l.since(time.Time{})
}

// allowed counts the results with status 200.
func allowed(results []timed) (count int) {
	for _, a := range results {
		if a.status == http.StatusOK {
			count++
		}
	}
	return count
}
