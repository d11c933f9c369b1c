package attack

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/mux"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
)

// route is a handler, and the rule for it.
type route struct {
	rule, method, path string
	priority           int
}

// routes are registered with every router, and each has a rule with the same path. The strict ones have a lower priority than
// the lax ones, which are for other paths or methods. The last one takes what no other does.
var routes = []route{
	{rule: "login", path: "/login", priority: 10},
	{rule: "search", path: "/api/search/**", priority: 10},
	{rule: "write", method: "POST", path: "/orders", priority: 10},
	{rule: "delete", method: "DELETE", path: "/orders/{id}", priority: 10},
	{rule: "read", method: "GET", path: "/orders", priority: 20},
	{rule: "static", path: "/static/**", priority: 20},
	{rule: "healthz", path: "/healthz", priority: 30},
	{rule: "me", path: "/users/me"},
	{rule: "user", path: "/users/{id}"},
	{rule: "post", path: "/users/{id}/posts/{post}"},
	{rule: "file", path: "/files/{name}"},
	{rule: "rest", path: "/**"},
}

// routeRules are the rules for all routes. None of them ever denies anything.
func routeRules(ignoreCase bool) []headgate.Rule {
	var rules []headgate.Rule
	for _, r := range routes {
		rules = append(rules, headgate.Rule{
			ID: r.rule, Match: headgate.Match{Path: r.path, Method: r.method, IgnoreCase: ignoreCase}, By: []string{"ip"},
			Limit: headgate.PerHour(1_000_000), Priority: r.priority,
		})
	}
	// What is for all paths but some must not be escaped by a spelling of those that is another path to the router.
	return append(rules, headgate.Rule{
		ID: "but-healthz", By: []string{"ip"}, Limit: headgate.PerHour(1_000_000),
		Match: headgate.Match{Attributes: map[string]headgate.Pattern{"path": headgate.NoneOf("/healthz")}},
	})
}

// serve is the handler of a route.
func serve(r route, path func(*http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Route", r.rule)
		w.Header().Set("X-Path", path(req))
		w.WriteHeader(http.StatusOK) // gin has said 404 where it has no route
	}
}

func decodedPath(r *http.Request) string { return r.URL.Path }
func rawPath(r *http.Request) string     { return r.URL.EscapedPath() }

// routers are those that programs in Go use, by name.
func routers() map[string]http.Handler {
	gin.SetMode(gin.ReleaseMode)
	return map[string]http.Handler{
		"ServeMux":          serveMux(),
		"chi":               chiRouter(),
		"chi cleaning":      chiRouter(middleware.CleanPath, middleware.StripSlashes),
		"gin":               ginRouter(func(*gin.Engine) {}),
		"gin merging":       ginRouter(func(e *gin.Engine) { e.RemoveExtraSlash, e.RedirectFixedPath = true, true }),
		"gin raw":           ginRouter(func(e *gin.Engine) { e.UseRawPath = true }),
		"gin raw merging":   ginRouter(func(e *gin.Engine) { e.UseRawPath, e.RemoveExtraSlash = true, true }),
		"gorilla":           gorillaRouter(mux.NewRouter()),
		"gorilla unclean":   gorillaRouter(mux.NewRouter().SkipClean(true)),
		"gorilla raw":       gorillaRouter(mux.NewRouter().UseEncodedPath()),
		"prefix of the URL": http.HandlerFunc(prefixes),
	}
}

func serveMux() http.Handler {
	m := http.NewServeMux()
	for _, r := range routes {
		pattern := strings.TrimSuffix(r.path, "**")
		if r.method != "" {
			pattern = r.method + " " + pattern
		}
		m.Handle(pattern, serve(r, rawPath))
	}
	return m
}

func chiRouter(before ...func(http.Handler) http.Handler) http.Handler {
	c := chi.NewRouter()
	c.Use(before...)
	path := func(r *http.Request) string {
		if r.URL.RawPath != "" {
			return r.URL.RawPath
		}
		return r.URL.Path
	}
	for _, r := range routes {
		pattern := strings.Replace(r.path, "**", "*", 1)
		if r.method != "" {
			c.Method(r.method, pattern, serve(r, path))
			continue
		}
		c.Handle(pattern, serve(r, path))
	}
	return c
}

func ginRouter(options func(*gin.Engine)) http.Handler {
	e := gin.New()
	options(e)
	for _, r := range routes {
		handler := gin.WrapF(serve(r, decodedPath))
		if e.UseRawPath {
			handler = gin.WrapF(serve(r, rawPath))
		}
		pattern := strings.NewReplacer("**", "*rest", "{", ":", "}", "").Replace(r.path)
		switch {
		case r.rule == "rest": // gin has no route beside one for everything
			e.NoRoute(handler)
		case r.method != "":
			e.Handle(r.method, pattern, handler)
		default:
			e.Any(pattern, handler)
		}
	}
	return e
}

func gorillaRouter(m *mux.Router) http.Handler {
	for _, r := range routes {
		on := m.NewRoute()
		if prefix, ok := strings.CutSuffix(r.path, "**"); ok {
			on.PathPrefix(prefix)
		} else {
			on.Path(r.path)
		}
		if r.method != "" {
			on.Methods(r.method)
		}
		on.Handler(serve(r, decodedPath))
	}
	return m
}

// prefixes is the router of whoever looks at the path with package strings.
func prefixes(w http.ResponseWriter, req *http.Request) {
	for _, r := range routes {
		prefix, deep := strings.CutSuffix(r.path, "**")
		prefix, parameter, _ := strings.Cut(prefix, "{")
		switch {
		case r.method != "" && r.method != req.Method || strings.Contains(parameter, "/"):
		case deep && strings.HasPrefix(req.URL.Path, prefix), !deep && parameter == "" && req.URL.Path == prefix,
			parameter != "" && strings.HasPrefix(req.URL.Path, prefix) && len(req.URL.Path) > len(prefix) &&
				!strings.Contains(req.URL.Path[len(prefix):], "/"):
			serve(r, decodedPath)(w, req)
			return
		}
	}
}

// overriding lets a POST stand for another method, as frameworks do: the header goes first in some, the parameter in others.
func overriding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			for _, method := range []string{r.Header.Get("X-HTTP-Method-Override"), r.URL.Query().Get("_method")} {
				if method != "" && !strings.Contains(method, ",") {
					r.Method = strings.ToUpper(method)
					break
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// chargedRules is a limiter that puts the rules of each decision into the response.
type chargedRules struct{ *headgate.Limiter }

type responseKey struct{}

func (c chargedRules) Check(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	d, err := c.Limiter.Check(ctx, req)
	if w, ok := ctx.Value(responseKey{}).(http.ResponseWriter); ok {
		var rules []string
		for _, l := range d.Limits {
			rules = append(rules, l.Rule)
		}
		w.Header().Set("X-Rules", strings.Join(rules, " "))
	}
	return d, err
}

// behind puts httplimit in front of a router.
func behind(t *testing.T, router http.Handler, ignoreCase bool) *rawConn {
	t.Helper()
	limiter := newLimiter(t, memstore.New(memstore.Options{}), routeRules(ignoreCase)...)
	limited := httplimit.New(chargedRules{limiter}, httplimit.Options{Log: quiet()})(overriding(router))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), responseKey{}, w)))
	}))
	t.Cleanup(server.Close)
	return dialRaw(t, server.Listener.Addr().String())
}

// tried is what came of a corpus.
type tried struct{ sent, served, elsewhere, escaped int }

func (of *tried) log(t *testing.T) {
	t.Helper()
	t.Logf("%d spellings, %d ran a handler, %d of them one for certain paths, %d escaped its rule", of.sent, of.served, of.elsewhere, of.escaped)
	if of.elsewhere < of.sent/10 {
		t.Errorf("only %d of %d spellings ran a handler for certain paths: too few to mean anything", of.elsewhere, of.sent)
	}
}

// try sends a spelling, and complains if a handler ran whose rule was not charged, by one of those who say what was.
func (of *tried) try(t *testing.T, seed uint64, s spelling, conn *rawConn, charged ...func(spelling, http.Header) []string) {
	t.Helper()
	reply := conn.send(s.line, s.headers...)
	of.sent++
	header := reply.header
	ran := header.Get("X-Route")
	if ran == "" || reply.status != http.StatusOK { // no handler, or one that sends the client to another path
		return
	}
	of.served++
	if ran != "rest" {
		of.elsewhere++
	}
	wanted := []string{ran}
	// The router takes it for another path than /healthz, which is not subject to that rule; a slash at the end is ignored by it.
	if path, _, _ := strings.Cut(header.Get("X-Path"), "?"); ran != "healthz" && path != "" && strings.TrimRight(path, "/") != "/healthz" {
		wanted = append(wanted, "but-healthz")
	}
	for i, say := range charged {
		rules := say(s, header)
		for _, want := range wanted {
			if rules == nil || slices.Contains(rules, want) {
				continue
			}
			if of.escaped++; of.escaped <= 10 {
				t.Errorf("seed %d: %s: handler %s ran, path %q, and rule %s was not charged: %v (%d)", seed, s, ran, header.Get("X-Path"), want, rules, i)
			}
		}
	}
}

func decidedRules(_ spelling, h http.Header) []string {
	return append([]string{}, strings.Fields(h.Get("X-Rules"))...)
}

// TestReadingRouters sends thousands of spellings to routers behind a limiter: whatever handler runs, its rule was charged.
func TestReadingRouters(t *testing.T) {
	t.Parallel()
	const seed = 1
	spellings := corpus(seed, size(1_500, 20_000))
	for name, router := range routers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := behind(t, router, false)
			var of tried
			for _, s := range spellings {
				of.try(t, seed, s, conn, decidedRules)
			}
			of.log(t)
		})
	}
}

// TestReadingRoutersIgnoreCase is TestReadingRouters for one that ignores case, and rules that do.
func TestReadingRoutersIgnoreCase(t *testing.T) {
	t.Parallel()
	const seed = 2
	conn := behind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.ToLower(r.URL.Path)
		prefixes(w, r)
	}), true)
	var of tried
	for _, s := range corpus(seed, size(1_500, 20_000)) {
		of.try(t, seed, s, conn, decidedRules)
	}
	of.log(t)
}
