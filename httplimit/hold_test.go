package httplimit_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
)

// concurrent is a limiter whose requests in flight a test can count.
type concurrent struct {
	*headgate.Limiter
	t     *testing.T
	limit int64
	// begun is called after each decision of Begin, which it may change. The default does nothing.
	begun func(d *headgate.Decision) error
}

// newConcurrent returns a limiter with the rule exports-in-flight, and others.
func newConcurrent(t *testing.T, limit int64, others ...headgate.Rule) *concurrent {
	t.Helper()
	rules := append([]headgate.Rule{{ID: "exports-in-flight", By: []string{"ip"}, Limit: headgate.Concurrent(limit)}}, others...)
	limiter, err := headgate.New(memstore.New(memstore.Options{Clock: time.Now}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	return &concurrent{Limiter: limiter, t: t, limit: limit}
}

func (c *concurrent) Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	d, err := c.Limiter.Begin(ctx, req)
	if c.begun != nil {
		err = errors.Join(err, c.begun(&d))
	}
	return d, err
}

// inUse returns how many units of the rule an address has in use.
func (c *concurrent) inUse(ip string) int64 {
	c.t.Helper()
	d, err := c.Peek(c.t.Context(), headgate.Request{Attributes: headgate.Attributes{"ip": ip}})
	if err != nil || len(d.Limits) == 0 {
		c.t.Fatalf("%+v: %v", d, err)
	}
	return c.limit - d.Limits[0].Remaining
}

const (
	testClient  = "192.0.2.1" // of httptest.NewRequest
	localClient = "127.0.0.1"
)

// expectInUse waits until a local client has so many units in use: they are released asynchronously.
func (c *concurrent) expectInUse(when string, want int64) {
	c.t.Helper()
	for end := time.Now().Add(10 * time.Second); c.inUse(localClient) != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s: %d units in use, want %d", when, c.inUse(localClient), want)
		}
	}
}

func evenRule() headgate.Rule {
	return headgate.Rule{
		ID: "even", By: []string{"ip"}, MaxDelay: time.Minute,
		Limit: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second},
	}
}

// panicking is a ResponseWriter and a log handler that panics.
type panicking struct {
	http.ResponseWriter
	slog.Handler
}

func (panicking) Header() http.Header                       { panic("header") }
func (panicking) Handle(context.Context, slog.Record) error { panic("log") }

// TestNoUnitIsLost ends requests in every way, and checks that each has units in use while it is served and none afterwards.
func TestNoUnitIsLost(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	var after *http.Request
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		options httplimit.Options
		others  []headgate.Rule
		ctx     context.Context //nolint:containedctx // of the request
		begun   func(*headgate.Decision) error
		writer  http.ResponseWriter
		// timeout ends the request's context; 0 means never.
		timeout time.Duration
		// times is how often the request is sent at once. The default is 1.
		times int
		// reaches is how many requests reach the handler.
		reaches int
		panics  any
	}{
		"returns":                {reaches: 1},
		"writes":                 {reaches: 1, handler: hello},
		"panics":                 {reaches: 1, panics: "handler", handler: func(http.ResponseWriter, *http.Request) { panic("handler") }},
		"aborts":                 {reaches: 1, panics: http.ErrAbortHandler, handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"exits the goroutine":    {reaches: 1, handler: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }},
		"denied":                 {reaches: 2, times: 5, handler: func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }},
		"denied by another rule": {reaches: 1, times: 2, others: []headgate.Rule{{ID: "a", By: []string{"ip"}, Limit: headgate.PerHour(1)}}},
		"delayed":                {reaches: 2, times: 2, others: []headgate.Rule{evenRule()}},
		"leaves while delayed":   {reaches: 1, times: 2, others: []headgate.Rule{evenRule()}, timeout: time.Second / 2},
		"over MaxWaiters":        {reaches: 1, times: 2, others: []headgate.Rule{evenRule()}, options: httplimit.Options{MaxWaiters: -1}},
		"left before":            {ctx: cancelled},
		"OnDenied panics": {
			reaches: 1, times: 2, others: []headgate.Rule{evenRule()}, panics: "denied",
			options: httplimit.Options{MaxWaiters: -1, OnDenied: func(http.ResponseWriter, *http.Request, headgate.Decision) { panic("denied") }},
		},
		"OnDenied keeps": {
			reaches: 1, times: 2, others: []headgate.Rule{evenRule()},
			options: httplimit.Options{MaxWaiters: -1, OnDenied: func(_ http.ResponseWriter, r *http.Request, _ headgate.Decision) {
				httplimit.Keep(r)
			}},
		},
		"the log panics": {
			begun: func(*headgate.Decision) error { return errors.New("no store") }, panics: "log",
			options: httplimit.Options{Log: slog.New(panicking{Handler: slog.Default().Handler()})},
		},
		"undecided":         {begun: func(*headgate.Decision) error { return errors.New("no store") }, reaches: 1},
		"the writer panics": {writer: panicking{}, panics: "header"},
		"denied despite its units": {
			begun: func(d *headgate.Decision) error { d.Allowed = false; return nil },
		},
		"kept": {reaches: 1, handler: func(_ http.ResponseWriter, r *http.Request) {
			done := httplimit.Keep(r)
			time.AfterFunc(time.Second, func() { done(headgate.Outcome{Status: http.StatusSwitchingProtocols}) })
		}},
		"kept, then panics": {
			reaches: 1, panics: "handler", handler: func(_ http.ResponseWriter, r *http.Request) {
				defer httplimit.Keep(r)(headgate.Outcome{})
				panic("handler")
			},
		},
		"kept and released early": {reaches: 1, handler: func(_ http.ResponseWriter, r *http.Request) {
			httplimit.Keep(r)(headgate.Outcome{})
			httplimit.Keep(r) // nothing is left
		}},
		"kept after the return": {reaches: 1, handler: func(_ http.ResponseWriter, r *http.Request) {
			after = r
			time.AfterFunc(time.Second, func() { httplimit.Keep(after) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConcurrent(t, 2, test.others...)
				c.begun = test.begun
				if test.handler == nil {
					test.handler = func(http.ResponseWriter, *http.Request) {}
				}
				if test.ctx == nil {
					test.ctx = context.Background()
				}
				test.options.Log = cmp.Or(test.options.Log, quiet())
				var mu sync.Mutex
				reached := 0
				var panicked any
				h := httplimit.New(c, test.options)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					reached++
					if c.inUse(testClient) == 0 {
						t.Error("no units are in use while the handler runs")
					}
					mu.Unlock()
					test.handler(w, r)
				}))
				var all sync.WaitGroup
				for range max(1, test.times) {
					all.Go(func() {
						defer func() {
							if p := recover(); p != nil {
								panicked = p
							}
						}()
						ctx, cancel := test.ctx, func() {}
						if test.timeout > 0 {
							ctx, cancel = context.WithTimeout(ctx, test.timeout)
						}
						defer cancel()
						var w http.ResponseWriter = httptest.NewRecorder()
						if test.writer != nil {
							w = test.writer
						}
						h.ServeHTTP(w, get("/").WithContext(ctx))
					})
				}
				all.Wait()
				time.Sleep(2 * time.Second) // for what continues, and because released units are kept for a moment
				if reached != test.reaches || panicked != test.panics {
					t.Errorf("%d requests reached the handler, want %d; panic %v, want %v", reached, test.reaches, panicked, test.panics)
				}
				if n := c.inUse(testClient); n != 0 {
					t.Errorf("%d units in use after all requests have ended", n)
				}
				_ = c.Close(t.Context())
			})
		})
	}
}

// TestConcurrencyResponses compares the response to a request while others are in flight.
func TestConcurrencyResponses(t *testing.T) {
	t.Parallel()
	const denial = `429
		RateLimit-Policy: "exports-in-flight";q=2;qu="concurrent-requests"
		RateLimit: "exports-in-flight";r=0
		X-RateLimit-Limit: 2
		X-RateLimit-Remaining: 0
		RateLimit-Limit: 2
		RateLimit-Remaining: 0
		Retry-After: 1
		Content-Type: application/problem+json
		{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
		`"violated-policies":["exports-in-flight"],"error":"rate_limit_exceeded",` +
		`"message":"rate limit exceeded: exports-in-flight allows 2 concurrent requests; retry in 1 second",` +
		`"rule":"exports-in-flight","retry_after":1}`
	const hourly = `429
		RateLimit-Policy: "exports-in-flight";q=2;qu="concurrent-requests", "hourly";q=2;w=3600
		RateLimit: "exports-in-flight";r=0, "hourly";r=0;t=1800
		X-RateLimit-Limit: 2
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 946688400
		RateLimit-Limit: 2
		RateLimit-Remaining: 0
		RateLimit-Reset: 1800
		Retry-After: 1800
		Content-Type: application/problem+json
		{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
		`"violated-policies":["exports-in-flight","hourly"],"error":"rate_limit_exceeded",` +
		`"message":"rate limit exceeded: hourly allows 2/hour; retry in 1800 seconds","rule":"hourly","retry_after":1800}`
	for name, test := range map[string]struct {
		others   []headgate.Rule
		inFlight int
		want     string
	}{
		"allowed": {inFlight: 1, want: `200
			RateLimit-Policy: "exports-in-flight";q=2;qu="concurrent-requests"
			RateLimit: "exports-in-flight";r=0
			X-RateLimit-Limit: 2
			X-RateLimit-Remaining: 0
			RateLimit-Limit: 2
			RateLimit-Remaining: 0
			hello`},
		"denied":                      {inFlight: 2, want: denial},
		"denied by a rate limit also": {inFlight: 2, others: []headgate.Rule{{ID: "hourly", By: []string{"ip"}, Limit: headgate.PerHour(2)}}, want: hourly},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := httplimit.NewWithRandom(newConcurrent(t, 2, test.others...), httplimit.Options{OlderDraft: true}, exact)
				waiting := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) }))
				var all sync.WaitGroup
				for range test.inFlight {
					all.Go(func() { serve(waiting, get("/")) })
				}
				synctest.Wait()
				compare(t, serve(limit(hello), get("/")), test.want)
				all.Wait()
				time.Sleep(time.Second)
			})
		})
	}
}

// TestKeep checks how long units are in use, and that Keep may be called any number of times.
func TestKeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outer, inner := newConcurrent(t, 5), newConcurrent(t, 5)
		expect := func(when string, want int64) {
			t.Helper()
			time.Sleep(time.Second)
			if a, b := outer.inUse(testClient), inner.inUse(testClient); a != want || b != want {
				t.Errorf("%s: %d and %d units in use, want %d", when, a, b, want)
			}
		}
		var first, second, third func(headgate.Outcome)
		var request *http.Request
		h := httplimit.New(outer, httplimit.Options{})(httplimit.New(inner, httplimit.Options{})(http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) {
				request = r.WithContext(context.WithoutCancel(r.Context()))
				first, second = httplimit.Keep(r), httplimit.Keep(request)
			})))
		serve(h, get("/"))
		expect("after the handler has returned", 1)
		first(headgate.Outcome{})
		first(headgate.Outcome{})
		expect("after one of two functions was called, twice", 1)
		third = httplimit.Keep(request)
		second(headgate.Outcome{})
		expect("after one of two was called", 1)
		third(headgate.Outcome{})
		expect("after all were called", 0)
		httplimit.Keep(request)(headgate.Outcome{})
		httplimit.Keep(get("/"))(headgate.Outcome{})
		expect("in the end", 0)
	})
}

// TestDenialHasNoUnits checks that a request that is denied because it would be delayed for too long has no units in use while its
// client reads the response.
func TestDenialHasNoUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrent(t, 5, evenRule())
		denied := 0
		h := httplimit.New(c, httplimit.Options{MaxWaiters: -1, OnDenied: func(http.ResponseWriter, *http.Request, headgate.Decision) {
			denied++
			time.Sleep(time.Second)
			if n := c.inUse(testClient); n != 0 {
				t.Errorf("%d units in use", n)
			}
		}})(hello)
		serve(h, get("/"))
		serve(h, get("/"))
		if denied != 1 {
			t.Errorf("%d requests were denied", denied)
		}
	})
}

// TestKeepRaces checks that units are released once if Keep, its functions and the end of the handler meet.
func TestKeepRaces(t *testing.T) {
	t.Parallel()
	c := newConcurrent(t, 1000)
	h := httplimit.New(c, httplimit.Options{})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for range 3 {
			go func() {
				done := httplimit.Keep(r)
				go done(headgate.Outcome{})
				done(headgate.Outcome{})
			}()
		}
	}))
	var all sync.WaitGroup
	for range 300 {
		all.Go(func() {
			r := get("/")
			r.RemoteAddr = localClient + ":1234"
			serve(h, r)
		})
	}
	all.Wait()
	c.expectInUse("in the end", 0)
}

// start serves a handler behind the middleware on a real connection.
func (c *concurrent) start(h http.Handler) *httptest.Server {
	s := httptest.NewServer(httplimit.New(c, httplimit.Options{})(h))
	c.t.Cleanup(s.Close)
	return s
}

// upgrade sends a request that asks for an upgrade, and returns the connection after the response's header.
func upgrade(t *testing.T, s *httptest.Server, want int) (net.Conn, *bufio.Reader) {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil) //nolint:bodyclose // the connection is closed
	if err != nil || response.StatusCode != want {
		t.Fatalf("%+v: %v", response, err)
	}
	return conn, reader
}

// echo returns a handler that upgrades a connection and sends lines back until it is closed. A detached one returns before.
func echo(t *testing.T, detached bool, returned chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		run := func() {
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			for {
				line, err := buffered.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, "echo "+line)
			}
		}
		if !detached {
			run()
			return
		}
		done := httplimit.Keep(r)
		go func() {
			defer done(headgate.Outcome{Status: http.StatusSwitchingProtocols})
			run()
		}()
		go func() { returned <- struct{}{} }()
	}
}

// TestUpgrade checks that an upgraded connection has a unit in use until it ends: if the handler serves it, if the handler keeps it, and
// through a reverse proxy.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	returned := make(chan struct{}, 10)
	backend := httptest.NewServer(echo(t, false, nil))
	t.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]http.Handler{
		"served":  echo(t, false, nil),
		"kept":    echo(t, true, returned),
		"proxied": &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConcurrent(t, 2)
			s := c.start(h)
			var conns []net.Conn
			for range 2 {
				conn, reader := upgrade(t, s, http.StatusSwitchingProtocols)
				if name == "kept" {
					<-returned
				}
				_, _ = io.WriteString(conn, "hi\n")
				if line, err := reader.ReadString('\n'); line != "echo hi\n" {
					t.Fatalf("read %q, %v", line, err)
				}
				conns = append(conns, conn)
			}
			if n := c.inUse(localClient); n != 2 {
				t.Errorf("%d units in use with 2 connections", n)
			}
			upgrade(t, s, http.StatusTooManyRequests)
			conns[0].Close()
			c.expectInUse("after one connection was closed", 1)
			conns[1].Close()
			c.expectInUse("after both were closed", 0)
		})
	}
}

// TestTimeoutHandler checks that units are released when an inner http.TimeoutHandler returns, but not those of a handler that keeps
// them because it works on, and that an outer one does not release those of a handler that works on.
func TestTimeoutHandler(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		keep, outer bool
		want        int64 // in use while the handler still runs
	}{
		"inner":       {want: 0},
		"inner, kept": {keep: true, want: 1},
		"outer":       {outer: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConcurrent(t, 2)
			proceed := make(chan struct{})
			var running sync.WaitGroup
			running.Add(1)
			var h http.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				defer running.Done()
				if test.keep {
					defer httplimit.Keep(r)(headgate.Outcome{})
				}
				<-r.Context().Done()
				<-proceed
				httplimit.Keep(r)(headgate.Outcome{}) // even now
			})
			limit := httplimit.New(c, httplimit.Options{})
			if test.outer {
				h = http.TimeoutHandler(limit(h), 20*time.Millisecond, "timeout")
			} else {
				h = limit(http.TimeoutHandler(h, 20*time.Millisecond, "timeout"))
			}
			s := httptest.NewServer(h)
			defer s.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("status %d", response.StatusCode)
			}
			c.expectInUse("after the response", test.want)
			close(proceed)
			running.Wait()
			c.expectInUse("after the handler has returned", 0)
		})
	}
}

// TestClientLeaves checks over a real connection that a handler that ends because its client has left releases its units.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	c := newConcurrent(t, 2)
	reached := make(chan struct{})
	s := c.start(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}))
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-reached
	c.expectInUse("while the client waits", 1)
	conn.Close()
	c.expectInUse("after the client has left", 0)
}

// TestRequestIsTheServers checks that outer handlers and the server see what inner handlers find out about the request.
func TestRequestIsTheServers(t *testing.T) {
	t.Parallel()
	c := newConcurrent(t, 2)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /files/{name}", func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
	})
	r := httptest.NewRequest(http.MethodPost, "/files/a", strings.NewReader(
		"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\ncontent\r\n--x--\r\n"))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	serve(httplimit.New(c, httplimit.Options{})(mux), r)
	if r.Pattern != "POST /files/{name}" || r.MultipartForm == nil {
		t.Fatalf("pattern %q, form %v", r.Pattern, r.MultipartForm)
	}
	if err := r.MultipartForm.RemoveAll(); err != nil {
		t.Error(err)
	}
	_ = c.Close(t.Context())
}

// TestNoGoroutinePerRequest counts goroutines while requests are in flight, so it does not run in parallel with other tests.
func TestNoGoroutinePerRequest(t *testing.T) { //nolint:paralleltest // see above
	const requests = 500
	goroutines := func(wrap func(http.Handler) http.Handler) int {
		proceed := make(chan struct{})
		var reached, all sync.WaitGroup
		reached.Add(requests)
		h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			reached.Done()
			<-proceed
		}))
		for range requests {
			all.Go(func() { serve(h, get("/")) })
		}
		reached.Wait()
		n := runtime.NumGoroutine()
		close(proceed)
		all.Wait()
		return n
	}
	bare := goroutines(func(h http.Handler) http.Handler { return h })
	c := newConcurrent(t, requests)
	limited := goroutines(httplimit.New(c, httplimit.Options{}))
	if limited > bare+requests/10 {
		t.Errorf("%d goroutines with %d requests in flight, %d without the middleware", limited, requests, bare)
	}
	_ = c.Close(t.Context())
}
