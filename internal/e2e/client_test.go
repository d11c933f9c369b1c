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

// client sends requests through a gateway, from an address of its own.
type client struct {
	t       testing.TB
	gateway string
	http    *http.Client
	headers http.Header // with each request
}

func newClient(t testing.TB, gateway, ip string) *client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: workers}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, gateway: gateway, http: &http.Client{Transport: transport, Timeout: patience}}
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

// counted is true if Headgate was asked: a limit applied.
func (a answer) counted() bool { return a.header.Get("RateLimit") != "" }

// send may be called by any goroutine. A request that is not answered fails the test.
func (c *client) send(method, path, body string) answer {
	a, err := c.try(method, path, body)
	if err != nil {
		c.t.Error(err)
	}
	return a
}

func (c *client) try(method, path, body string) (answer, error) {
	request, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.gateway+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if c.headers != nil {
		request.Header = c.headers.Clone()
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// passes wants the application's answer, with so much left of a limit.
func (c *client) passes(method, path, rule string, limit, left int) {
	c.t.Helper()
	body := ""
	if method == http.MethodPost {
		body = strings.Repeat("body ", 10_000)
	}
	got := c.send(method, path, body)
	if want := "application: " + method + " " + path + " " + body; got.status != http.StatusOK || got.body != want {
		c.t.Errorf("%s %s: %d, %.200q, not 200, %.200q", method, path, got.status, got.body, want)
	}
	got.tells(c.t, rule, limit, left)
	if later := got.header.Get("Retry-After"); later != "" {
		c.t.Errorf("%s %s passes, with a Retry-After of %s", method, path, later)
	}
}

// tells wants the headers of a limit.
func (a answer) tells(t testing.TB, rule string, limit, left int) {
	t.Helper()
	for name, want := range map[string]string{
		"RateLimit-Policy":      strconv.Quote(rule) + ";q=" + strconv.Itoa(limit) + ";w=60",
		"X-RateLimit-Limit":     strconv.Itoa(limit),
		"X-RateLimit-Remaining": strconv.Itoa(left),
	} {
		if got := a.header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s is %q, not %q", rule, name, got, want)
		}
	}
	state, want := a.header.Values("RateLimit"), strconv.Quote(rule)+";r="+strconv.Itoa(left)+";t="
	if len(state) != 1 || !strings.HasPrefix(state[0], want) {
		t.Errorf("%s: RateLimit is %q, not %q", rule, state, want)
	}
	reset, err := strconv.ParseInt(a.header.Get("X-RateLimit-Reset"), 10, 64)
	if until := time.Until(time.Unix(reset, 0)); err != nil || until <= 0 || until > 2*time.Minute {
		t.Errorf("%s: X-RateLimit-Reset is in %v: %v", rule, until, err)
	}
}

// denied wants a 429 that says when to come back.
func (c *client) denied(g gateway, method, path, rule string, limit int) {
	c.t.Helper()
	got := c.send(method, path, "")
	kind := got.header.Get("Content-Type")
	if got.status != http.StatusTooManyRequests || kind != "application/problem+json" {
		c.t.Errorf("%s %s: %d, %s, not 429, application/problem+json", method, path, got.status, kind)
	}
	got.tells(c.t, rule, limit, 0)
	later, err := strconv.Atoi(got.header.Get("Retry-After"))
	if err != nil || later < 1 || later > 60/limit+1 {
		c.t.Errorf("%s %s: Retry-After is %d: %v", method, path, later, err)
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
	if !g.ownBody && (problem.Rule != rule || problem.RetryAfter != later) {
		c.t.Errorf("%+v, which is not from Headgate", problem)
	}
}

// workers are as many as ask at once under load.
const workers = 4

// load is a client that asks for / all the time.
type load struct {
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	answers []timed
}

// timed is an answer, and when it was asked for.
type timed struct {
	answer
	asked time.Time
	took  time.Duration
}

func newLoad(c *client) *load {
	ctx, stop := context.WithCancel(c.t.Context())
	l := &load{stop: stop}
	c.t.Cleanup(func() { l.end() })
	for range workers {
		l.ended.Go(func() {
			for {
				asked := time.Now()
				a := c.send(http.MethodGet, "/", "")
				l.mu.Lock()
				l.answers = append(l.answers, timed{a, asked, time.Since(asked)})
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

// since are the answers to what was asked after a time.
func (l *load) since(then time.Time) (answers []timed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.asked.After(then) {
			answers = append(answers, a)
		}
	}
	return answers
}

// next are answers to what is asked from now on.
func (l *load) next(t testing.TB) (answers []timed) {
	t.Helper()
	now := time.Now()
	eventually(t, "answers", func() bool {
		answers = l.since(now)
		return len(answers) >= 4*workers
	})
	return answers
}

// end returns all answers.
func (l *load) end() []timed {
	l.stop()
	l.ended.Wait()
	return l.since(time.Time{})
}

func passed(answers []timed) (count int) {
	for _, a := range answers {
		if a.status == http.StatusOK {
			count++
		}
	}
	return count
}
