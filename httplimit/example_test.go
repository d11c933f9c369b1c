package httplimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/memstore"
)

// oneRule returns a limiter that counts in this process. To share counters between processes, use Redis: see redisstore.Open.
func oneRule(rule headgate.Rule) *headgate.Limiter {
	midday := func() time.Time { return time.Date(2026, time.November, 15, 12, 0, 0, 0, time.UTC) }
	limiter, err := headgate.New(memstore.New(memstore.Options{Clock: midday}), rule)
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

// send sends a request and prints the status and the rate limit headers of the response.
func send(h http.Handler, method, path string, header ...string) {
	r := httptest.NewRequest(method, path, http.NoBody)
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit"))
}

func Example() {
	limiter := oneRule(headgate.Rule{
		ID: "login", Match: headgate.Match{Path: "/login", Method: "POST"},
		By: []string{"ip"}, Limit: headgate.PerMinute(2),
	})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) {})

	// Serve h, for example with http.ListenAndServe.
	h := httplimit.New(limiter, httplimit.Options{})(mux)

	for range 3 {
		send(h, "POST", "/login")
	}
	send(h, "GET", "/")
	// Output:
	// 200 "login";q=2;w=60 "login";r=1;t=30
	// 200 "login";q=2;w=60 "login";r=0;t=60
	// 429 "login";q=2;w=60 "login";r=0;t=30
	// 200
}

// Behind a proxy, or with API keys, configure which proxies and headers to trust.
func ExampleNew_identity() {
	limiter := oneRule(headgate.Rule{ID: "by-key", By: []string{"api_key"}, Limit: headgate.PerMinute(2)})
	resolver, err := identity.New(identity.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		APIKey:         identity.APIKey{Header: "X-API-Key"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer resolver.Close()

	h := httplimit.New(limiter, httplimit.Options{Identity: resolver})(http.NotFoundHandler())

	send(h, "GET", "/", "X-API-Key", "k-1")
	send(h, "GET", "/", "X-API-Key", "k-1")
	send(h, "GET", "/", "X-API-Key", "k-2")
	// Output:
	// 404 "by-key";q=2;w=60 "by-key";r=1;t=30
	// 404 "by-key";q=2;w=60 "by-key";r=0;t=60
	// 404 "by-key";q=2;w=60 "by-key";r=1;t=30
}

// sessions wraps a Resolver and adds attributes that only this program knows.
type sessions struct{ *identity.Resolver }

func (s sessions) Attributes(r *http.Request, names ...string) headgate.Attributes {
	attributes := s.Resolver.Attributes(r, names...)
	if cookie, err := r.Cookie("session"); err == nil && cookie.Value == "s-42" {
		attributes["user"], attributes["tier"] = "ada", "pro"
	}
	return attributes
}

func ExampleIdentity() {
	limiter := oneRule(headgate.Rule{
		ID: "by-user", By: []string{"user"}, Limit: headgate.PerMinute(1),
		Tiers: map[string]headgate.Plan{"pro": {Limit: headgate.PerMinute(100)}},
	})
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		log.Fatal(err)
	}
	h := httplimit.New(limiter, httplimit.Options{Identity: sessions{resolver}})(http.NotFoundHandler())

	send(h, "GET", "/")
	send(h, "GET", "/", "Cookie", "session=s-42")
	// Output:
	// 404 "by-user";q=1;w=60 "by-user";r=0;t=60
	// 404 "by-user";q=100;w=60 "by-user";r=99;t=1
}

// OnDenied replaces the problem document with a page.
func ExampleOptions_deny() {
	limiter := oneRule(headgate.Rule{ID: "pages", By: []string{"ip"}, Limit: headgate.PerMinute(1)})
	h := httplimit.New(limiter, httplimit.Options{
		OnDenied: func(w http.ResponseWriter, _ *http.Request, decision headgate.Decision) {
			http.Error(w, "Slow down, please: "+decision.DeniedBy().Rule, http.StatusTooManyRequests)
		},
	})(http.NotFoundHandler())

	send(h, "GET", "/")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	fmt.Print(w.Code, " ", w.Body)
	// Output:
	// 404 "pages";q=1;w=60 "pages";r=0;t=60
	// 429 Slow down, please: pages
}

// Keep keeps the units of a connection that outlives its handler, such as a WebSocket.
func ExampleKeep() {
	limiter := oneRule(headgate.Rule{ID: "sockets", By: []string{"ip"}, Limit: headgate.Concurrent(1)})
	closed := make(chan struct{}) // when the connection ends
	socket := func(_ http.ResponseWriter, r *http.Request) {
		// Hijack the connection here.
		done := httplimit.Keep(r)
		go func() {
			defer done(headgate.Outcome{Status: http.StatusSwitchingProtocols})
			<-closed
		}()
	}
	h := httplimit.New(limiter, httplimit.Options{})(http.HandlerFunc(socket))

	send(h, "GET", "/socket")
	send(h, "GET", "/socket")
	close(closed)
	// Output:
	// 200 "sockets";q=1;qu="concurrent-requests" "sockets";r=0
	// 429 "sockets";q=1;qu="concurrent-requests" "sockets";r=0
}

// Cost charges requests by what they ask for. The rule lets it replace the cost, up to 100.
func ExampleOptions_cost() {
	limiter := oneRule(headgate.Rule{ID: "rows", By: []string{"ip"}, Limit: headgate.PerMinute(1000), Cost: headgate.Cost{Max: 100}})
	h := httplimit.New(limiter, httplimit.Options{
		Cost: func(r *http.Request) int64 {
			rows, _ := strconv.ParseInt(r.URL.Query().Get("rows"), 10, 64)
			return rows
		},
	})(http.NotFoundHandler())

	send(h, "GET", "/report")
	send(h, "GET", "/report?rows=30")
	send(h, "GET", "/report?rows=5000")
	// Output:
	// 404 "rows";q=1000;w=60 "rows";r=999;t=1
	// 404 "rows";q=1000;w=60 "rows";r=969;t=2
	// 404 "rows";q=1000;w=60 "rows";r=869;t=8
}
