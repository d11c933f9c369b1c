package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard // panics are intended
	os.Exit(m.Run())
}

// timeout is the maximum time to wait on a busy machine.
const timeout = 20 * time.Second

var frameworks = []string{"chi", "echo", "gin", "fiber"}

// rules are those of the tests. Proxies at 127.0.0.1 are trusted, and those at other addresses are clients.
var rules = []headgate.Rule{
	{ID: "hello", Match: headgate.Match{Path: "/hello"}, By: []string{"client"}, Limit: headgate.PerMinute(5)},
	{ID: "login", Match: headgate.Match{Path: "/login", Method: "POST"}, By: []string{"ip"}, Limit: headgate.PerHour(5)},
	{ID: "missing", Match: headgate.Match{Path: "/missing"}, By: []string{"ip"}, Limit: headgate.PerHour(1)},
	{ID: "user", Match: headgate.Match{Attributes: map[string]headgate.Pattern{"route": headgate.OneOf("/users/:id", "/users/{id}")}}, By: []string{"ip"}, Limit: headgate.PerHour(1)},
	{ID: "exports", Match: headgate.Match{Path: "/exports/*"}, By: []string{"ip"}, Limit: headgate.Concurrent(1)},
}

// newLimit returns middleware with counters in a Redis of the test's own.
func newLimit(t *testing.T) func(http.Handler) http.Handler {
	t.Helper()
	redis, err := redisstore.Open("redis://" + testenv.Start(t, testenv.Redis).Addr())
	testenv.NoError(t, err)
	quiet := slog.New(slog.DiscardHandler)
	store := storewrap.New(redis, storewrap.Options{Log: quiet, Deadline: 5 * time.Second}) // the machine may be busy
	limiter, err := headgate.New(store, rules...)
	testenv.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		testenv.NoError(t, limiter.Close(ctx))
		store.Close()
	})
	testenv.NoError(t, redis.Ready(t.Context()))
	who, err := identity.New(identity.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, APIKey: identity.APIKey{Header: "X-API-Key"}, Log: quiet,
	})
	testenv.NoError(t, err)
	return httplimit.New(limiter, httplimit.Options{Identity: who, Log: quiet})
}

// export is a long request, which the test ends. Its context is nil if the framework does not report that a client disconnected.
type export func(ctx context.Context, write func(string))

// start starts a framework with its example and the routes of the tests, and returns its address.
func start(t *testing.T, name string, export export) string {
	t.Helper()
	limit := newLimit(t)
	flush := func(w http.ResponseWriter) func(string) {
		return func(text string) {
			_, _ = io.WriteString(w, text) // an error means that the client has disconnected
			_ = http.NewResponseController(w).Flush()
		}
	}
	const login = "logged in"
	var handler http.Handler
	switch name {
	case "chi":
		router := newChi(limit)
		router.Post("/login", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, login) })
		router.Get("/exports/long", func(w http.ResponseWriter, r *http.Request) { export(r.Context(), flush(w)) })
		router.Get("/exports/hijack", hijack)
		router.Get("/exports/panic", func(http.ResponseWriter, *http.Request) { panic("of the test") })
		handler = router
	case "chi route":
		router := chi.NewRouter()
		router.With(limit).Get("/users/{id}", func(w http.ResponseWriter, _ *http.Request) { flush(w)("a user") })
		handler = router
	case "echo":
		router := newEcho(limit)
		router.POST("/login", func(c *echo.Context) error { return c.String(http.StatusOK, login) })
		router.GET("/users/:id", func(c *echo.Context) error { return c.String(http.StatusOK, c.Param("id")) })
		router.GET("/exports/long", func(c *echo.Context) error {
			export(c.Request().Context(), flush(c.Response()))
			return nil
		})
		router.GET("/exports/hijack", func(c *echo.Context) error {
			hijack(c.Response(), c.Request())
			return nil
		})
		router.GET("/exports/panic", func(*echo.Context) error { panic("of the test") })
		handler = router
	case "gin":
		router := newGin(limit)
		router.POST("/login", func(c *gin.Context) { c.String(http.StatusOK, login) })
		router.GET("/users/:id", func(c *gin.Context) { c.String(http.StatusOK, c.Param("id")) })
		router.GET("/exports/long", func(c *gin.Context) { export(c.Request.Context(), flush(c.Writer)) })
		router.GET("/exports/hijack", func(c *gin.Context) { hijack(c.Writer, c.Request) })
		router.GET("/exports/panic", func(*gin.Context) { panic("of the test") })
		handler = router
	case "fiber":
		app := newFiber(limit)
		app.Post("/login", func(c fiber.Ctx) error { return c.SendString(login) })
		app.Get("/exports/long", fiberStream(func(w *bufio.Writer) {
			export(nil, func(text string) { _, _ = w.WriteString(text); _ = w.Flush() })
		}))
		app.Get("/exports/panic", func(fiber.Ctx) error { panic("of the test") })
		return listen(t, app)
	}
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // panics are intended
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// hijack takes over the connection, returns, and keeps the slot until the client disconnects.
func hijack(w http.ResponseWriter, r *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	done := httplimit.Keep(r)
	go func() {
		defer done(headgate.Outcome{Status: http.StatusSwitchingProtocols})
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}()
}

// listen starts a Fiber app and returns its address.
func listen(t *testing.T, app *fiber.App) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testenv.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		testenv.NoError(t, app.ShutdownWithTimeout(timeout))
		testenv.NoError(t, <-ended)
	})
	return listener.Addr().String()
}

// client sends requests from its own address.
type client struct {
	t       *testing.T
	address string
	http    *http.Client
}

func newClient(t *testing.T, address, ip string) *client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t, address, &http.Client{Transport: transport, Timeout: timeout}}
}

// do sends a request. Headers are pairs of name and value.
func (c *client) do(ctx context.Context, method, path string, headers ...string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+path, http.NoBody)
	testenv.NoError(c.t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return c.http.Do(request)
}

// expect sends a request and checks the status and the remaining units.
func (c *client) expect(status int, remaining, method, path string, headers ...string) (header http.Header, body string) {
	c.t.Helper()
	response, err := c.do(c.t.Context(), method, path, headers...)
	testenv.NoError(c.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	testenv.NoError(c.t, err)
	if got := strings.Join(response.Header.Values("X-RateLimit-Remaining"), ","); response.StatusCode != status || got != remaining {
		c.t.Errorf("%s %s %q: %d with %q remaining, want %d, %q: %.100q", method, path, headers, response.StatusCode, got, status, remaining, text)
	}
	return response.Header, string(text)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v without %s", timeout, what)
		}
	}
}
