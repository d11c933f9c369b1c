package attack

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
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

// route is a handler and its rule.
type route struct {
	rule, method, path string
	priority           int
}

// routes are registered with every router, and each has a rule with the same path. The strict ones have a lower priority than
// the lax ones, which are for other paths or methods. The last one is a catch-all.
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

// costs are what the handler of each route costs, by its position in routes. The cheap ones are for other paths and methods than the
// expensive ones.
var costs = []int64{50, 40, 30, 60, 2, 3, 4, 20, 15, 25, 10, 1}

// costOf returns the cost of the handler of a route.
func costOf(rule string) int64 {
	return costs[slices.IndexFunc(routes, func(r route) bool { return r.rule == rule })]
}

// budgetRule returns a rule with one counter for all routes, whose costs are a table.
func budgetRule(ignoreCase bool) headgate.Rule {
	budget := headgate.Rule{ID: "budget", By: []string{"ip"}, Limit: headgate.PerHour(headgate.MaxCost)}
	for i, r := range routes {
		budget.Costs = append(budget.Costs, headgate.CostEntry{
			Match: headgate.Match{Path: r.path, Method: r.method, IgnoreCase: ignoreCase}, Cost: costs[i],
		})
	}
	return budget
}

// sharedBudget returns a rule with one counter for all routes, and a rule for each route that charges it.
func sharedBudget(ignoreCase bool) []headgate.Rule {
	rules := []headgate.Rule{{ID: "shared", By: []string{"ip"}, Limit: headgate.PerHour(headgate.MaxCost)}}
	for i, r := range routes {
		rules = append(rules, headgate.Rule{
			ID: "shared-" + r.rule, Match: headgate.Match{Path: r.path, Method: r.method, IgnoreCase: ignoreCase}, Counter: "shared",
			Cost: headgate.Cost{Default: costs[i]},
		})
	}
	return rules
}

// routeRules returns the rules for all routes. They never deny.
func routeRules(ignoreCase bool) []headgate.Rule {
	rules := append(sharedBudget(ignoreCase), budgetRule(ignoreCase))
	for _, r := range routes {
		rules = append(rules, headgate.Rule{
			ID: r.rule, Match: headgate.Match{Path: r.path, Method: r.method, IgnoreCase: ignoreCase}, By: []string{"ip"},
			Limit: headgate.PerHour(1_000_000), Priority: r.priority,
		})
	}
	// A rule for all paths but one must not be evaded by a spelling of that path which the router takes for another path.
	return append(rules, headgate.Rule{
		ID: "but-healthz", By: []string{"ip"}, Limit: headgate.PerHour(1_000_000),
		Match: headgate.Match{Attributes: map[string]headgate.Pattern{"path": headgate.NoneOf("/healthz")}},
	})
}

// serve returns the handler of a route.
func serve(r route, path func(*http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Route", r.rule)
		w.Header().Set("X-Path", path(req))
		w.WriteHeader(http.StatusOK) // gin has set 404 where it has no route
	}
}

func decodedPath(r *http.Request) string { return r.URL.Path }
func rawPath(r *http.Request) string     { return r.URL.EscapedPath() }

// routers returns popular Go routers, by name.
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
		"prefix of the URL": http.HandlerFunc(prefixRouter),
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
		case r.rule == "rest": // gin does not allow other routes next to a catch-all
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

// prefixRouter routes by comparing the path with package strings.
func prefixRouter(w http.ResponseWriter, req *http.Request) {
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

// methodOverride replaces the method of a POST, as frameworks do: by the header in some, by the parameter in others.
func methodOverride(next http.Handler) http.Handler {
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

// budgets are the rules whose cost must be that of the handler, or higher.
var budgets = []string{"budget", "shared"}

// chargedRules is a limiter that adds the rules of each decision to the response.
type chargedRules struct{ *headgate.Limiter }

type responseKey struct{}

func (c chargedRules) Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	d, err := c.Limiter.Begin(ctx, req)
	if w, ok := ctx.Value(responseKey{}).(http.ResponseWriter); ok {
		var rules []string
		for _, l := range d.Limits {
			rules = append(rules, l.Rule)
			if slices.Contains(budgets, l.Rule) {
				w.Header().Set("X-Cost-"+l.Rule, strconv.FormatInt(l.Cost, 10))
			}
		}
		w.Header().Set("X-Rules", strings.Join(rules, " "))
	}
	return d, err
}

// limitedRouter starts a server with httplimit in front of a router.
func limitedRouter(t *testing.T, router http.Handler, ignoreCase bool) *rawConn {
	t.Helper()
	limiter := newLimiter(t, memstore.New(memstore.Options{}), routeRules(ignoreCase)...)
	limited := httplimit.New(chargedRules{limiter}, httplimit.Options{Log: quiet()})(methodOverride(router))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), responseKey{}, w)))
	}))
	t.Cleanup(server.Close)
	return dialRaw(t, server.Listener.Addr().String())
}

// spellingStats counts the results of a corpus.
type spellingStats struct{ sent, served, specific, escaped, cheaper int }

func (stats *spellingStats) log(t *testing.T) {
	t.Helper()
	t.Logf("%d spellings, %d ran a handler, %d of them a specific one, %d evaded its rule, %d were cheaper", stats.sent, stats.served, stats.specific,
		stats.escaped, stats.cheaper)
	if stats.specific < stats.sent/10 {
		t.Errorf("only %d of %d spellings ran a specific handler: too few to be significant", stats.specific, stats.sent)
	}
}

// send sends a spelling and fails if a handler ran whose rule is not among the charged ones. charged are functions that return
// the charged rules.
func (stats *spellingStats) send(t *testing.T, seed uint64, s spelling, conn *rawConn, charged ...func(spelling, http.Header) []string) {
	t.Helper()
	reply := conn.send(s.line, s.headers...)
	stats.sent++
	header := reply.header
	ran := header.Get("X-Route")
	if ran == "" || reply.status != http.StatusOK { // no handler, or a redirect
		return
	}
	stats.served++
	if ran != "rest" {
		stats.specific++
	}
	for _, rule := range budgets {
		if cost, err := strconv.ParseInt(header.Get("X-Cost-"+rule), 10, 64); err == nil && cost < costOf(ran) {
			if stats.cheaper++; stats.cheaper <= 10 {
				t.Errorf("seed %d: %s: handler %s ran, path %q, at a cost of %d by rule %s, want %d", seed, s, ran, header.Get("X-Path"), cost, rule, costOf(ran))
			}
		}
	}
	wanted := []string{ran}
	// The router takes it for another path than /healthz, so that rule applies; it ignores a trailing slash.
	if path, _, _ := strings.Cut(header.Get("X-Path"), "?"); ran != "healthz" && path != "" && strings.TrimRight(path, "/") != "/healthz" {
		wanted = append(wanted, "but-healthz")
	}
	for i, rulesOf := range charged {
		rules := rulesOf(s, header)
		for _, want := range wanted {
			if rules == nil || slices.Contains(rules, want) {
				continue
			}
			if stats.escaped++; stats.escaped <= 10 {
				t.Errorf("seed %d: %s: handler %s ran, path %q, and rule %s was not charged: %v (%d)", seed, s, ran, header.Get("X-Path"), want, rules, i)
			}
		}
	}
}

func decidedRules(_ spelling, h http.Header) []string {
	return append([]string{}, strings.Fields(h.Get("X-Rules"))...)
}

// TestSpellingsAtRouters sends thousands of spellings to routers behind a limiter: the rule of the handler that runs must be charged.
func TestSpellingsAtRouters(t *testing.T) {
	t.Parallel()
	const seed = 1
	spellings := corpus(seed, size(1_500, 20_000))
	for name, router := range routers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := limitedRouter(t, router, false)
			var stats spellingStats
			for _, s := range spellings {
				stats.send(t, seed, s, conn, decidedRules)
			}
			stats.log(t)
		})
	}
}

// TestSpellingsAtRoutersIgnoreCase does the same with a router and rules that ignore case.
func TestSpellingsAtRoutersIgnoreCase(t *testing.T) {
	t.Parallel()
	const seed = 2
	conn := limitedRouter(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.ToLower(r.URL.Path)
		prefixRouter(w, r)
	}), true)
	var stats spellingStats
	for _, s := range corpus(seed, size(1_500, 20_000)) {
		stats.send(t, seed, s, conn, decidedRules)
	}
	stats.log(t)
}
