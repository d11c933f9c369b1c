package attack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
)

// readingLimit is the hourly limit of the rules that the attacks try to evade.
const readingLimit = 5

// rawConn sends requests unchanged. A client of net/http would normalize them.
type rawConn struct {
	t       testing.TB
	address string
	conn    net.Conn
	reader  *bufio.Reader
}

func dialRaw(t testing.TB, address string) *rawConn {
	t.Helper()
	c := &rawConn{t: t, address: address}
	t.Cleanup(c.close)
	return c
}

func (c *rawConn) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// rawReply is a response without its body.
type rawReply struct {
	status int
	header http.Header
}

// send returns the response to "METHOD target" with header lines. The status is 0 if the server closes the connection without one.
func (c *rawConn) send(line string, headers ...string) rawReply {
	c.t.Helper()
	method, _, _ := strings.Cut(line, " ")
	text := line + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(headers, ""), "\r\n")
	if method == http.MethodPost {
		text += "Content-Length: 0\r\n"
	}
	for attempt := 0; ; attempt++ {
		reply, err := c.exchange(method, text+"\r\n")
		if err == nil || attempt > 0 {
			return reply
		}
		c.close() // the server may have closed it after the previous request
	}
}

func (c *rawConn) exchange(method, text string) (rawReply, error) {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			c.t.Fatal(err)
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.conn.Write([]byte(text)); err != nil {
		return rawReply{}, err
	}
	response, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		return rawReply{}, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if err != nil || response.Close || method == http.MethodConnect {
		c.close()
	}
	return rawReply{response.StatusCode, response.Header}, err
}

// handled sends n requests to a handler behind rules, and returns how many were served.
func handled(t *testing.T, n int, handler http.HandlerFunc, line func(i int) string, headers []string, rules ...headgate.Rule) int {
	t.Helper()
	limit := httplimit.New(newLimiter(t, memstore.New(memstore.Options{}), rules...), httplimit.Options{Log: quiet()})
	var ran atomic.Int64
	server := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handler == nil {
			ran.Add(1)
			return
		}
		handler(w, r)
		if w.Header().Get("X-Ran") != "" {
			ran.Add(1)
		}
	})))
	defer server.Close()
	conn := dialRaw(t, server.Listener.Addr().String())
	defer conn.close()
	for i := range n {
		conn.send(line(i), headers...)
	}
	return int(ran.Load())
}

func strict(id string, priority int, match headgate.Match, by ...string) headgate.Rule {
	return headgate.Rule{ID: id, Match: match, By: by, Limit: headgate.PerHour(readingLimit), Priority: priority}
}

func lax(id string, priority int, match headgate.Match) headgate.Rule {
	return headgate.Rule{ID: id, Match: match, By: []string{"ip"}, Limit: headgate.PerHour(1_000_000), Priority: priority}
}

// TestAmbiguousRequestKeepsItsRule sends requests with a second interpretation that matches only a lax rule of higher priority:
// it must not displace the strict rule, which matches the backend's interpretation.
func TestAmbiguousRequestKeepsItsRule(t *testing.T) {
	t.Parallel()
	attempts := size(200, 1000)
	for _, attack := range []struct {
		name, line string
		headers    []string
		rules      []headgate.Rule
	}{
		{
			"method in a header", "POST /orders",
			[]string{"X-HTTP-Method-Override: GET"},
			[]headgate.Rule{
				strict("write", 10, headgate.Match{Path: "/orders", Method: "POST"}, "ip"),
				lax("read", 20, headgate.Match{Path: "/orders", Method: "GET"}),
			},
		},
		{
			"method in the query", "POST /orders?_method=GET", nil,
			[]headgate.Rule{
				strict("write", 10, headgate.Match{Path: "/orders", Method: "POST"}, "ip"),
				lax("read", 20, headgate.Match{Path: "/orders", Method: "GET"}),
			},
		},
		{
			"any method", "POST /orders",
			[]string{"X-HTTP-Method-Override: GET", "X-Method-Override: PUT"},
			[]headgate.Rule{
				strict("write", 10, headgate.Match{Path: "/orders", Method: "POST"}, "ip"),
				lax("read", 20, headgate.Match{Path: "/orders", Method: "GET"}),
			},
		},
		{
			"path with parameters", "POST /static/..;/login", nil,
			[]headgate.Rule{
				strict("login", 10, headgate.Match{Path: "/login"}, "ip"),
				lax("static", 20, headgate.Match{Path: "/static/**"}),
			},
		},
		{
			"path with an encoded slash", "POST /static/%2e%2e%2Flogin", nil,
			[]headgate.Rule{
				strict("login", 10, headgate.Match{Path: "/login"}, "ip"),
				lax("static", 20, headgate.Match{Path: "/static/**"}),
			},
		},
	} {
		ran := handled(t, attempts, nil, func(int) string { return attack.line }, attack.headers, attack.rules...)
		t.Logf("%s: %s %v: %d of %d allowed, limit %d", attack.name, attack.line, attack.headers, ran, attempts, readingLimit)
		if ran > readingLimit {
			t.Errorf("%s: %d allowed", attack.name, ran)
		}
	}
}

// TestAmbiguousPaths sends paths that are below /api/search for a router that decodes once and resolves nothing, and are
// elsewhere for other routers.
func TestAmbiguousPaths(t *testing.T) {
	t.Parallel()
	attempts := size(200, 1000)
	prefixHandler := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/search/") {
			w.Header().Set("X-Ran", "search")
		}
	}
	for _, path := range []string{
		"/api%2Fsearch/x;/..;/..;/..;/y", "/api%2Fsearch/..%5C..%5C..%5Cy", "/api/search/../../y", "/api/search/%3f/../../../y",
		"x:/api/search/y", "http://a/api/search/../../y",
	} {
		ran := handled(t, attempts, prefixHandler, func(int) string { return "GET " + path }, nil,
			strict("search", 0, headgate.Match{Path: "/api/search/**"}, "ip"))
		t.Logf("%s: %d of %d allowed, limit %d", path, ran, attempts, readingLimit)
		if ran > readingLimit {
			t.Errorf("%s: %d allowed", path, ran)
		}
	}
}

// TestIgnoreCaseCountsOnce spells a path in upper and lower case, for a rule that counts by path and ignores case.
func TestIgnoreCaseCountsOnce(t *testing.T) {
	t.Parallel()
	const letters = len("login")
	attempts := 10 << letters
	ran := handled(t, attempts, nil, func(i int) string {
		path := []byte("/login")
		for b := range letters {
			if i>>b&1 == 1 {
				path[1+b] -= 'a' - 'A'
			}
		}
		return "POST " + string(path)
	}, nil, strict("login", 0, headgate.Match{Path: "/login", IgnoreCase: true}, "ip", "path"))
	t.Logf("%d of %d allowed, limit %d", ran, attempts, readingLimit)
	if ran > readingLimit {
		t.Errorf("%d allowed", ran)
	}
}

// TestAmbiguousRequestCountsOnce varies the parts of requests that the backend ignores: a rule by path or method must count each
// request under the backend's interpretation.
func TestAmbiguousRequestCountsOnce(t *testing.T) {
	t.Parallel()
	attempts := size(200, 1000)
	// This router splits a path before decoding it, and resolves dots.
	splitHandler := func(w http.ResponseWriter, r *http.Request) {
		var kept []string
		for segment := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
			switch segment {
			case "":
			case "..":
				kept = kept[:max(len(kept)-1, 0)]
			default:
				kept = append(kept, segment)
			}
		}
		if strings.Join(kept, "/") == "users/7" {
			w.Header().Set("X-Ran", "user")
		}
	}
	byPath := strict("user", 0, headgate.Match{Path: "/users/{id}"}, "ip", "path")
	for _, path := range []string{"/x%d%%2fy/../users/7", "/users/7/..%%2f%d%%2fz/..", "/users/7/x%%00%d/..", "/users/7/%d%%3f/.."} {
		ran := handled(t, attempts, splitHandler, func(i int) string { return fmt.Sprintf("GET "+path, i) }, nil, byPath)
		t.Logf("%s: %d of %d allowed, limit %d", path, ran, attempts, readingLimit)
		if ran > readingLimit {
			t.Errorf("%s: %d allowed", path, ran)
		}
	}
	deleteHandler := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-HTTP-Method-Override") == "DELETE" || r.Method == http.MethodDelete {
			w.Header().Set("X-Ran", "delete")
		}
	}
	ran := handled(t, attempts, deleteHandler, func(i int) string { return []string{"POST /", "DELETE /"}[i%2] },
		[]string{"X-HTTP-Method-Override: DELETE"}, strict("method", 0, headgate.Match{}, "ip", "method"))
	t.Logf("DELETE, and POST with an override: %d of %d allowed, limit %d", ran, attempts, readingLimit)
	if ran > readingLimit {
		t.Errorf("%d allowed", ran)
	}
}
