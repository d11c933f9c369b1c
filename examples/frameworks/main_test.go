package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/headgate/headgate/internal/testenv"
)

// each runs a test for each framework, with a Redis for each.
func each(t *testing.T, test func(t *testing.T, name string)) {
	t.Helper()
	for _, name := range frameworks {
		t.Run(name, func(t *testing.T) { test(t, name) })
	}
}

func TestLimits(t *testing.T) {
	testenv.Long(t)
	each(t, func(t *testing.T, name string) {
		c := newClient(t, start(t, name, nil), "127.0.0.2")
		for remaining := 4; remaining >= 0; remaining-- {
			header, body := c.expect(200, strconv.Itoa(remaining), "GET", "/hello")
			if policy := header.Get("RateLimit-Policy"); body != "hello\n" || policy != `"hello";q=5;w=60` {
				t.Errorf("%q, %s", body, policy)
			}
		}
		header, body := c.expect(429, "0", "GET", "/hello")
		var problem struct {
			Rule       string
			RetryAfter int `json:"retry_after"`
		}
		err := json.Unmarshal([]byte(body), &problem)
		if err != nil || problem.Rule != "hello" || problem.RetryAfter < 1 || header.Get("Retry-After") != strconv.Itoa(problem.RetryAfter) ||
			header.Get("Content-Type") != "application/problem+json" || header.Get("X-RateLimit-Limit") != "5" ||
			!strings.HasPrefix(header.Get("RateLimit"), `"hello";r=0;t=`) {
			t.Errorf("%v: %v, %s", err, header, body)
		}
		newClient(t, c.address, "127.0.0.3").expect(200, "4", "GET", "/hello")

		c.expect(404, "0", "GET", "/missing") // a path without a route is limited, too
		c.expect(429, "0", "GET", "/missing")
		c.expect(404, "", "GET", "/other")
	})
}

// TestRoute tests the attribute route, where the middleware knows it.
func TestRoute(t *testing.T) {
	testenv.Long(t)
	for _, name := range []string{"chi route", "echo", "gin"} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, start(t, name, nil), "127.0.0.2")
			c.expect(200, "0", "GET", "/users/1")
			c.expect(429, "0", "GET", "/users/2")
		})
	}
}

// TestIdentity tests that clients are identified behind a trusted proxy, and only there.
func TestIdentity(t *testing.T) {
	testenv.Long(t)
	each(t, func(t *testing.T, name string) {
		proxy := newClient(t, start(t, name, nil), "127.0.0.1")
		proxy.expect(200, "4", "GET", "/hello", "X-Forwarded-For", "192.0.2.1")
		proxy.expect(200, "3", "GET", "/hello", "X-Forwarded-For", "198.51.100.1", "X-Forwarded-For", "192.0.2.1")
		proxy.expect(200, "2", "GET", "/hello", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-For", "127.0.0.1")
		proxy.expect(200, "4", "GET", "/hello", "X-Forwarded-For", "192.0.2.2")
		proxy.expect(200, "4", "GET", "/hello", "X-Forwarded-For", "192.0.2.1", "X-User-Id", "ann")
		proxy.expect(200, "3", "GET", "/hello", "X-Forwarded-For", "192.0.2.9", "X-User-Id", "ann")
		proxy.expect(200, "4", "GET", "/hello", "X-API-Key", "k1")
		proxy.expect(200, "3", "GET", "/hello", "X-API-Key", "k1")

		c := newClient(t, proxy.address, "127.0.0.2")
		for i := range 5 {
			forged := fmt.Sprintf("198.51.100.%d", i)
			c.expect(200, strconv.Itoa(4-i), "GET", "/hello", "X-Forwarded-For", forged, "X-User-Id", forged, "X-Real-IP", forged)
		}
		for i := range 6 { // all clients with several keys count as one
			status, remaining := 200, max(4-i, 0)
			if i == 5 {
				status = 429
			}
			c.expect(status, strconv.Itoa(remaining), "GET", "/hello", "X-API-Key", "first", "X-API-Key", strconv.Itoa(i))
		}
	})
}

// TestSpellings tests that no spelling of a path reaches a route whose limit is exhausted.
func TestSpellings(t *testing.T) {
	testenv.Long(t)
	targets := []string{
		"/login", "/login/", "//login", "/login//", "/./login", "/x/../login", "/login/.", "/login/x/..", "/%6cogin", "/%6Cog%69n", "/%256cogin",
		"/login%2f", "/%2flogin", "/%2e/login", "/x/%2e%2e/login", "/x/..%2flogin", "/login;a=b", "/login;", "/;/login", "/login?", "/login?x=1", "/login#x",
		"/login%3fx", "/login%23x", "/login%00", "/login%20", "/login%09", `/\login`, `\login`, "/%5clogin", "login", "?", "*", "http://x/login", "http://x//login",
		"http://x/%6cogin", "HTTP://x/login", "//x/login", "/LOGIN", "/Login", "/login%c0%af", "/x/..;/login", "/login.", "/login/..;/login", "/login\x01", "/\xc5\xbfogin",
	}
	each(t, func(t *testing.T, name string) {
		address := start(t, name, nil)
		c := newClient(t, address, "127.0.0.2")
		for remaining := 4; remaining >= 0; remaining-- {
			c.expect(200, strconv.Itoa(remaining), "POST", "/login")
		}
		for _, target := range targets {
			for _, line := range []string{"POST " + target + " HTTP/1.1", "POST " + target + " HTTP/1.0", "post " + target + " HTTP/1.1"} {
				if got := sendRaw(t, address, line+"\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); strings.Contains(got, "logged in") {
					t.Errorf("%s reaches the handler: %q", line, got)
				}
			}
		}
	})
}

// TestHijack tests that a hijacked connection has its slot until it ends.
func TestHijack(t *testing.T) {
	testenv.Long(t)
	for _, name := range []string{"chi", "echo", "gin"} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, start(t, name, nil), "127.0.0.2")
			conn := dial(t, c.address)
			_, err := io.WriteString(conn, "GET /exports/hijack HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
			testenv.NoError(t, err)
			first := make([]byte, len("HTTP/1.1 101"))
			_, err = io.ReadFull(conn, first)
			testenv.NoError(t, err)
			if string(first) != "HTTP/1.1 101" {
				t.Fatalf("%q", first)
			}
			c.expect(429, "0", "GET", "/exports/panic")
			testenv.NoError(t, conn.Close())
			eventually(t, "a free slot", func() bool { return status(t, c, "/exports/panic") != 429 })
		})
	}
}

// sendRaw sends bytes from 127.0.0.2 and returns the response.
func sendRaw(t *testing.T, address, request string) string {
	t.Helper()
	conn := dial(t, address)
	defer conn.Close()
	_, err := io.WriteString(conn, request)
	testenv.NoError(t, err)
	response, _ := io.ReadAll(conn) // what came before an error counts
	return string(response)
}

// dial connects from 127.0.0.2.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}, Timeout: timeout}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	testenv.NoError(t, err)
	testenv.NoError(t, conn.SetDeadline(time.Now().Add(timeout)))
	return conn
}

// TestConcurrency tests that a request has its slot until it ends, by a return, a panic or because the client disconnected.
func TestConcurrency(t *testing.T) {
	testenv.Long(t)
	each(t, func(t *testing.T, name string) {
		running, end := make(chan struct{}, 10), make(chan struct{})
		c := newClient(t, start(t, name, func(ctx context.Context, write func(string)) {
			write("first\n")
			running <- struct{}{}
			var left <-chan struct{}
			if ctx != nil {
				left = ctx.Done()
			}
			select {
			case <-end:
				write("last\n")
			case <-left:
			}
		}), "127.0.0.2")

		// A stream: its first event arrives while it runs.
		response, err := c.do(t.Context(), "GET", "/exports/long")
		testenv.NoError(t, err)
		defer response.Body.Close()
		first := make([]byte, len("first\n"))
		_, err = io.ReadFull(response.Body, first)
		testenv.NoError(t, err)
		<-running
		if denied, _ := c.expect(429, "0", "GET", "/exports/panic"); denied.Get("RateLimit-Policy") != `"exports";q=1;qu="concurrent-requests"` {
			t.Errorf("%v", denied)
		}
		end <- struct{}{}
		rest, err := io.ReadAll(response.Body)
		testenv.NoError(t, err)
		if string(rest) != "last\n" {
			t.Errorf("%q", rest)
		}

		free := func(after string) {
			t.Helper()
			eventually(t, "a free slot after "+after, func() bool { return status(t, c, "/exports/panic") != 429 })
		}
		free("a return")
		free("a panic")
		free("a second panic")

		ctx, disconnect := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			var err error
			for err == nil { // until the slot of the request before it is free
				var response *http.Response
				if response, err = c.do(ctx, "GET", "/exports/long"); err == nil {
					_, err = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			}
			gone <- err
		}()
		<-running
		c.expect(429, "0", "GET", "/exports/panic")
		disconnect()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if name == "fiber" { // which does not notice
			c.expect(429, "0", "GET", "/exports/panic")
			end <- struct{}{}
		}
		free("a disconnect")
	})
}

// status sends a request and returns the status, or 500 if the server closes the connection instead.
func status(t *testing.T, c *client, path string) int {
	t.Helper()
	response, err := c.do(t.Context(), "GET", path)
	if err != nil {
		return http.StatusInternalServerError
	}
	defer response.Body.Close()
	return response.StatusCode
}

// TestFiberAdaptor tests what docs/frameworks.md says of Fiber's own adaptor: the handler runs when its slot is free again.
func TestFiberAdaptor(t *testing.T) {
	testenv.Long(t)
	running, end := make(chan struct{}), make(chan struct{})
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(newLimit(t)))
	app.Get("/exports/long", func(fiber.Ctx) error {
		running <- struct{}{}
		<-end
		return nil
	})
	c := newClient(t, listen(t, app), "127.0.0.2")
	for range 2 {
		go func() {
			for status(t, c, "/exports/long") == 429 { // until the release has reached Redis
			}
		}()
		<-running
	}
	close(end)
}

// TestFiberIgnoresCase tests that Fiber's default needs ignore_case, as docs/frameworks.md says.
func TestFiberIgnoresCase(t *testing.T) {
	app := fiber.New()
	app.Get("/login", func(fiber.Ctx) error { return nil })
	if got := status(t, newClient(t, listen(t, app), "127.0.0.2"), "/LOGIN"); got != 200 {
		t.Errorf("%d, want 200", got)
	}
}

// TestDocs tests that the Go code of docs/frameworks.md is in the examples.
func TestDocs(t *testing.T) {
	var sources strings.Builder
	for _, name := range append([]string{"main"}, frameworks...) {
		text, err := os.ReadFile(name + ".go")
		testenv.NoError(t, err)
		sources.WriteString(unindent(string(text)))
	}
	page, err := os.ReadFile("../../docs/frameworks.md")
	testenv.NoError(t, err)
	blocks := 0
	for i, block := range strings.Split(string(page), "```") {
		if code, isGo := strings.CutPrefix(block, "go\n"); i%2 == 1 && isGo {
			blocks++
			if !strings.Contains(sources.String(), unindent(code)) {
				t.Errorf("not in the examples:\n%s", code)
			}
		}
	}
	if blocks < len(frameworks) {
		t.Errorf("only %d blocks of Go", blocks)
	}
}

// unindent removes the indentation of each line.
func unindent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, "\t "))
	}
	return b.String()
}
