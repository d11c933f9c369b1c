package checkhttp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
)

// recordingEngine records the attributes of the last check.
type recordingEngine struct {
	check.Engine
	attributes headgate.Attributes
}

func (s *recordingEngine) Check(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	s.attributes = req.Attributes
	return s.Engine.Check(ctx, req)
}

// forwardAuth returns a forward-auth request of a trusted proxy.
func forwardAuth(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, pathAuthorize, http.NoBody)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Host = "headgate:8080"
	for pair := range slices.Chunk(header, 2) {
		r.Header.Add(pair[0], pair[1])
	}
	return r
}

// decidedOn returns what the decision is based on: method, alternative method, host, path, API key and route.
func decidedOn(t *testing.T, r *http.Request) string {
	t.Helper()
	engine := &recordingEngine{Engine: limiter(t)}
	switch w := serve(newTest(t, engine, Options{}), r); w.Code {
	case http.StatusBadRequest:
		return "400"
	case http.StatusOK:
	default:
		t.Errorf("status %d", w.Code)
	}
	a := engine.attributes
	names := []string{a["method"], a[headgate.OtherMethod], a["host"], a["path"], a["api_key"], a["route"]}
	return strings.TrimSpace(strings.Join(names, " "))
}

func TestOriginalRequest(t *testing.T) {
	t.Parallel()
	untrusted := forwardAuth("X-Forwarded-Uri", "/login", "X-Forwarded-Method", "POST", "X-Forwarded-Host", "h",
		"X-Original-URI", "/")
	untrusted.RemoteAddr = "192.0.2.1:4711"
	mounted := forwardAuth("X-Forwarded-Uri", "/x", "X-Forwarded-Method", "GET")
	mounted.Pattern = "/v1/"
	for _, test := range []struct {
		name string
		send *http.Request
		want string
	}{
		{
			"Traefik and Caddy",
			forwardAuth("X-Forwarded-Uri", "/a/../login?x=1", "X-Forwarded-Method", "POST", "X-Forwarded-Host", "API.example.com:443"),
			"POST  api.example.com /login",
		},
		{"nginx", forwardAuth("X-Original-URI", "/login?x=1", "X-Original-Method", "POST"), "POST  headgate /login"},
		{
			"a host of the client", forwardAuth("X-Original-URI", "/", "X-Original-Method", "GET", "X-Forwarded-Host", "h"),
			"GET  headgate /",
		},
		{"a HEAD", forwardAuth("X-Forwarded-Uri", "/x", "X-Forwarded-Method", "HEAD"), "GET  headgate /x"},
		{"an absolute URI", forwardAuth("X-Original-URI", "http://h/x?y", "X-Original-Method", "GET"), "GET  headgate /x"},
		{"no method", forwardAuth("X-Original-URI", "/login"), "GET * headgate /login"},
		{"no URI", forwardAuth("X-Forwarded-Method", "POST"), "GET  headgate /v1/authorize"},
		{"an empty URI", forwardAuth("X-Forwarded-Uri", ""), "GET  headgate /v1/authorize"},
		{"nothing", forwardAuth(), "GET  headgate /v1/authorize"},
		{"behind a mux", mounted, "GET  headgate /x"},
		{"an untrusted peer", untrusted, "GET  headgate /v1/authorize"},
		{
			"an override", forwardAuth("X-Forwarded-Uri", "/x", "X-Forwarded-Method", "POST", "X-HTTP-Method-Override", "DELETE"),
			"POST DELETE headgate /x",
		},
		{
			"a key in the query", forwardAuth("X-Forwarded-Uri", "/x?key=k", "X-Forwarded-Method", "GET"),
			"GET  headgate /x " + headgate.HashKey("k"),
		},
		{
			"a key in a header", forwardAuth("X-Original-Uri", "/x", "X-Original-Method", "GET", "X-API-Key", "k"),
			"GET  headgate /x " + headgate.HashKey("k"),
		},
		{"both", forwardAuth("X-Forwarded-Uri", "/x", "X-Original-URI", "/y"), "400"},
		{"both, equal", forwardAuth("X-Forwarded-Uri", "/x", "X-Original-URI", "/x"), "400"},
		{"a method of the other", forwardAuth("X-Forwarded-Method", "GET", "X-Original-URI", "/x"), "400"},
		{"an empty one of the other", forwardAuth("X-Forwarded-Uri", "", "X-Original-URI", "/x"), "400"},
		{"two lines", forwardAuth("X-Forwarded-Uri", "/x", "X-Forwarded-Uri", "/y"), "400"},
		{"two equal lines", forwardAuth("X-Forwarded-Uri", "/x", "X-Forwarded-Uri", "/x "), "GET * headgate /x"},
		{"two hosts", forwardAuth("X-Forwarded-Uri", "/x", "X-Forwarded-Host", "a", "X-Forwarded-Host", "b"), "400"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := decidedOn(t, test.send); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestClientsCannotChoose adds every header that a client could send to those that its proxy sets: none of them may change
// the request that is decided on.
func TestClientsCannotChoose(t *testing.T) {
	t.Parallel()
	for _, proxy := range []struct {
		name   string
		sets   []string
		adding [][]string // for each header: its name, the true value, false values
	}{
		{
			"Traefik",
			[]string{"X-Forwarded-Uri", "/login", "X-Forwarded-Method", "POST", "X-Forwarded-Host", "api"},
			[][]string{
				{"X-Original-Uri", "/login", "/free", ""},
				{"X-Original-Method", "POST", "GET", ""},
				{"X-Original-Host", "api", "free", ""},
			},
		},
		{
			"nginx",
			[]string{"X-Original-Uri", "/login", "X-Original-Method", "POST"},
			[][]string{
				{"X-Forwarded-Uri", "/login", "/free", ""},
				{"X-Forwarded-Method", "POST", "GET", ""},
				{"X-Forwarded-Host", "headgate:8080", "free", ""},
			},
		},
		{
			"nginx as in its manual",
			[]string{"X-Original-Uri", "/login"},
			[][]string{
				{"X-Forwarded-Uri", "/login", "/free", ""},
				{"X-Forwarded-Method", "POST", "GET", ""},
				{"X-Forwarded-Host", "headgate:8080", "free", ""},
			},
		},
	} {
		t.Run(proxy.name, func(t *testing.T) {
			t.Parallel()
			truth := decidedOn(t, forwardAuth(proxy.sets...))
			for n := range 4 * 4 * 4 {
				header := slices.Clone(proxy.sets)
				for _, choice := range proxy.adding {
					if n%4 > 0 {
						header = append(header, choice[0], choice[n%4])
					}
					n /= 4
				}
				if got := decidedOn(t, forwardAuth(header...)); got != "400" && got != truth {
					t.Errorf("%q: decided on %q, want %q", header, got, truth)
				}
			}
		})
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

// TestAnyMethod checks that forward-auth accepts any method, reads no body, and responds as package httplimit does.
func TestAnyMethod(t *testing.T) {
	t.Parallel()
	h := newTest(t, limiter(t), Options{})
	for i, method := range strings.Fields("GET HEAD POST PUT DELETE OPTIONS PROPFIND PATCH TRACE GET GET") {
		r := forwardAuth("X-Forwarded-Uri", "/login", "X-Forwarded-Method", "POST", "X-Forwarded-For", "192.0.2.1")
		r.Method, r.Body = method, io.NopCloser(unread{t})
		w := serve(h, r)
		if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 10]; w.Code != want {
			t.Errorf("%s: status %d, want %d", method, w.Code, want)
		}
		if i == 10 && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "login-by-ip allows")) {
			t.Errorf("denied with %v %s", w.Header(), w.Body)
		}
	}
}

// TestForwardAuthLog checks that problems of proxies are logged once.
func TestForwardAuthLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := newTest(t, limiter(t), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	untrusted := forwardAuth("X-Forwarded-Uri", "/login")
	untrusted.RemoteAddr = "192.0.2.1:4711"
	for range 3 {
		serve(h, untrusted)
		serve(h, forwardAuth())
		serve(h, forwardAuth("X-Forwarded-Uri", "/x", "X-Original-Uri", "/y"))
	}
	for _, want := range []string{"header of an untrusted peer ignored", "without the original URI", "invalid forward-auth request"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q: %d times in the log:\n%s", want, n, log.String())
		}
	}
}

// beginningEngine fails the test if Begin is called: the proxy does not report the end of requests.
type beginningEngine struct {
	check.Engine
	t *testing.T
}

func (e beginningEngine) Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	e.t.Error("a concurrency limit was applied")
	return e.Check(ctx, req)
}

func TestForwardAuthDoesNotBegin(t *testing.T) {
	t.Parallel()
	h := newTest(t, beginningEngine{limiter(t), t}, Options{})
	if w := serve(h, forwardAuth("X-Forwarded-Uri", "/login", "X-Forwarded-Method", "POST", "X-Forwarded-Host", "h")); w.Code != http.StatusOK {
		t.Errorf("status %d", w.Code)
	}
}
