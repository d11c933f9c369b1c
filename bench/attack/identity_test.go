package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// clientRequest is one request as a client makes it, whichever entry point receives it.
type clientRequest struct{ method, path, ip, key string }

// entryPoint is one way to check a request.
type entryPoint struct {
	name string
	// check reports whether the request was allowed.
	check func(t *testing.T, s clientRequest) bool
	// attributes lists the attributes of a request that the entry point sees.
	attributes string
}

// identityConfig locates API keys and trusts all proxies on this machine.
const identityConfig = `identity: {trusted_proxies: [127.0.0.0/8], api_key: {header: X-API-Key}}
`

// entryPoints returns all entry points of one namespace: those of a service, and programs that use the library.
func entryPoints(t *testing.T, redis *testenv.Server, node *fleet.Node, rules ...headgate.Rule) []entryPoint {
	t.Helper()
	resolver, err := identity.New(identity.Options{
		TrustedProxies: loopback, APIKey: identity.APIKey{Header: "X-API-Key"}, Log: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resolver.Close)
	limiter := newLimiter(t, longDeadlineStore(t, redis), rules...)
	conn, err := grpc.NewClient(node.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	remote, err := client.New(client.Options{Addresses: []string{node.GRPC}, Timeout: 10 * time.Second, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remote.Close)
	checks := checkv1.NewCheckServiceClient(conn)
	return []entryPoint{
		{"middleware", limited(limiter, resolver), "method path ip key"},
		{"middleware with client", limited(remote, resolver), "method path ip key"},
		{"interceptor", interceptor(t, limiter, resolver), "ip key"},
		{"forward-auth", forwardAuth(node), "method path ip key"},
		{"JSON", func(t *testing.T, s clientRequest) bool {
			return post(t, node, "/v1/check", fmt.Sprintf(`{"attributes": {"method": %q, "path": %q, "ip": %q, "api_key": %q}}`,
				s.method, s.path, s.ip, s.key)).Allowed
		}, "method path ip key"},
		{"JSON batch", func(t *testing.T, s clientRequest) bool {
			text, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/check/batch",
				fmt.Sprintf(`{"requests": [{"attributes": {"method": %q, "path": %q, "ip": %q, "api_key": %q}}]}`, s.method, s.path, s.ip, s.key))
			var batch struct{ Responses []reply }
			if err == nil {
				err = json.Unmarshal(text, &batch)
			}
			if err != nil || len(batch.Responses) != 1 {
				t.Fatalf("%v: %s", err, text)
			}
			return batch.Responses[0].Allowed
		}, "method path ip key"},
		{"JSON reserve", func(t *testing.T, s clientRequest) bool {
			return post(t, node, "/v1/reserve", fmt.Sprintf(`{"attributes": {"method": %q, "path": %q, "ip": %q, "api_key": %q}}`,
				s.method, s.path, s.ip, s.key)).Allowed
		}, "method path ip key"},
		{"gRPC", func(t *testing.T, s clientRequest) bool {
			r, err := checks.Check(t.Context(), s.message())
			return err == nil && r.GetAllowed()
		}, "method path ip key"},
		{"gRPC stream", func(t *testing.T, s clientRequest) bool { return streamed(t, checks, s) }, "method path ip key"},
		{"RLS", func(t *testing.T, s clientRequest) bool { return described(t, conn, s) }, "method path ip key"},
	}
}

func (s clientRequest) message() *checkv1.CheckRequest {
	return &checkv1.CheckRequest{Attributes: map[string]string{"method": s.method, "path": s.path, "ip": s.ip, "api_key": s.key}}
}

// limited returns a check through a handler behind the middleware.
func limited(checker httplimit.Checker, resolver *identity.Resolver) func(*testing.T, clientRequest) bool {
	h := httplimit.New(checker, httplimit.Options{Identity: resolver, Log: quiet()})(http.NotFoundHandler())
	return func(t *testing.T, s clientRequest) bool {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), s.method, "http://api.example/", http.NoBody)
		r.RequestURI, r.RemoteAddr = s.path, "127.0.0.1:1234"
		if u, err := url.ParseRequestURI(s.path); err == nil {
			r.URL = u
		}
		r.Header.Set("X-Forwarded-For", s.ip)
		r.Header.Set("X-API-Key", s.key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code == http.StatusNotFound
	}
}

func interceptor(t *testing.T, limiter *headgate.Limiter, resolver *identity.Resolver) func(*testing.T, clientRequest) bool {
	t.Helper()
	interceptors, err := grpclimit.New(limiter, grpclimit.Options{Identity: resolver, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(interceptors.Unary))
	healthv1.RegisterHealthServer(server, &countingHealth{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func(t *testing.T, s clientRequest) bool {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", s.ip, "x-api-key", s.key)
		_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
		return err == nil
	}
}

func forwardAuth(node *fleet.Node) func(*testing.T, clientRequest) bool {
	return func(t *testing.T, s clientRequest) bool {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+node.HTTP+"/v1/authorize", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-Method", s.method)
		r.Header.Set("X-Forwarded-Uri", s.path)
		r.Header.Set("X-Forwarded-For", s.ip)
		r.Header.Set("X-API-Key", s.key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
}

func streamed(t *testing.T, checks checkv1.CheckServiceClient, s clientRequest) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := checks.CheckStream(ctx)
	if err == nil {
		err = stream.Send(&checkv1.CheckStreamRequest{Checks: []*checkv1.StreamCheck{{Id: 1, Request: s.message()}}})
	}
	for err == nil {
		var m *checkv1.CheckStreamResponse
		if m, err = stream.Recv(); len(m.GetAnswers()) > 0 {
			return m.GetAnswers()[0].GetResponse().GetAllowed()
		}
	}
	t.Fatal(err)
	return false
}

func described(t *testing.T, conn *grpc.ClientConn, s clientRequest) bool {
	t.Helper()
	d := &ratelimitv3.RateLimitDescriptor{}
	for _, e := range [][2]string{{"method", s.method}, {"path", s.path}, {"remote_address", s.ip}, {"api_key", s.key}} {
		if e[1] != "" {
			d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: e[0], Value: e[1]})
		}
	}
	r, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(),
		&rlsv3.RateLimitRequest{Domain: "api", Descriptors: []*ratelimitv3.RateLimitDescriptor{d}})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetOverallCode() == rlsv3.RateLimitResponse_OK
}

// TestClientHasOneCounter sends requests of the same client through every entry point, spelled differently each time. The client must
// get its limit once in total, not once per entry point.
func TestClientHasOneCounter(t *testing.T) {
	t.Parallel()
	const limit = 10
	for _, c := range []struct {
		by    string
		match string
		// spellings are requests of one client.
		spellings []clientRequest
		needs     string // attribute that an entry point must see
	}{
		{"api_key", "", []clientRequest{{key: "k-123"}, {key: " k-123 "}}, "key"},
		{"ip", "", []clientRequest{{ip: "2001:db8:1:2::1"}, {ip: "2001:db8:1:2:ffff::9"}, {ip: "2001:0DB8:1:2:0::a"}}, "ip"},
		{"ip", "", []clientRequest{{ip: "192.0.2.7"}, {ip: "::ffff:192.0.2.7"}}, "ip"},
		{
			"ip, path", "match: {path: /login, method: POST}, ",
			[]clientRequest{{path: "/login"}, {path: "//login/"}, {path: "/x/../login"}, {path: "/%6cogin"}, {path: "/login;a=b"}, {path: "/login?x=1"}},
			"path",
		},
		{
			"ip", "match: {path: /login, method: POST}, ",
			[]clientRequest{
				{path: "/login"},
				{path: "/login?" + strings.Repeat("a", 9_000)},
				{path: "http://api.example/login"},
				{path: "/login%0a"},
				{path: "/log%ffin"},
				{path: "/login;/x"},
				{path: "/login/%2e%2e//.."},
				{path: "/login;" + strings.Repeat("a", 9_000)},
			},
			"path",
		},
		{
			"ip", "match: {path: /login, method: DELETE}, ",
			[]clientRequest{{path: "/login?_method=DELETE"}, {path: "/login?_method=delete#"}, {path: "/login?a=b&_method=DELETE"}},
			"path",
		},
		{"ip", "match: {method: GET}, ", []clientRequest{{method: "GET"}, {method: "HEAD"}, {method: "head"}, {method: "get"}}, "method"},
	} {
		t.Run(c.needs+" "+c.by+" "+c.spellings[0].path+c.spellings[0].ip, func(t *testing.T) {
			t.Parallel()
			redis := startRedis(t)
			node := startServer(t, redisConfig(redis)+identityConfig,
				fmt.Sprintf("rules: [{id: all, %sby: [%s], limit: {rate: %d/hour, algorithm: fixed_window}}]\n", c.match, c.by, limit))
			rule := headgate.Rule{ID: "all", By: strings.Split(c.by, ", "), Limit: headgate.Limit{
				Algorithm: headgate.FixedWindow, Count: limit, Window: time.Hour,
			}}
			switch c.needs {
			case "path":
				rule.Match = headgate.Match{Path: "/login", Method: http.MethodPost}
				if strings.Contains(c.match, http.MethodDelete) {
					rule.Match.Method = http.MethodDelete
				}
			case "method":
				rule.Match = headgate.Match{Method: http.MethodGet}
			}
			passed, sent := 0, 0
			for range 2 {
				for _, e := range entryPoints(t, redis, node, rule) {
					if !strings.Contains(e.attributes, c.needs) {
						continue
					}
					for _, s := range c.spellings {
						sent++
						if e.check(t, complete(s)) {
							passed++
						}
					}
				}
			}
			t.Logf("by %s: %d of %d allowed at all entry points together, limit %d", c.by, passed, sent, limit)
			if passed != limit {
				t.Errorf("by %s: %d of %d allowed, limit %d", c.by, passed, sent, limit)
			}
		})
	}
}

// complete sets defaults for the attributes that are empty.
func complete(s clientRequest) clientRequest {
	if s.method == "" {
		s.method = http.MethodPost
	}
	if s.path == "" {
		s.path = "/api"
	}
	if s.ip == "" {
		s.ip = "198.51.100.1"
	}
	return s
}

// TestOverrideByAPIKey uses a key in an override, an exemption and a condition, in plain text and as its hash. Every entry point and
// explain must apply them.
func TestOverrideByAPIKey(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]string{"plain": "k-123", "hashed": headgate.HashKey("k-123")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := startRedis(t)
			node := startServer(t, redisConfig(redis)+identityConfig, fmt.Sprintf(`rules:
  - {id: all, by: [api_key], limit: 1/hour}
  - {id: banned, match: {api_key: %[1]q, method: DELETE}, by: [api_key], limit: 1/hour}
  - {id: free, by: [ip], limit: 1/hour}
overrides: [{rule: all, subject: {api_key: %[1]q}, limit: 100/hour}]
exemptions: [{rule: free, api_key: %[1]q}]
`, written))
			deleted := 0
			for _, e := range entryPoints(t, redis, node) {
				if strings.HasPrefix(e.name, "middleware") || e.name == "interceptor" {
					continue // the library's rules have no overrides
				}
				for i := range 2 {
					if !e.check(t, complete(clientRequest{key: "k-123"})) {
						t.Errorf("%s: request %d is denied: the override or the exemption was not applied", e.name, i+1)
					}
				}
				if e.check(t, complete(clientRequest{method: http.MethodDelete, key: "k-123"})) {
					deleted++
				}
			}
			if deleted != 1 {
				t.Errorf("%d allowed by a rule with a condition on the key, want 1", deleted)
			}
			out, err := exec.CommandContext(t.Context(), headgateProgram(t), "explain", "--rules", node.Dir+"/rules.yaml", "--redis", "redis://"+redis.Addr(),
				"POST", "/api", "ip=198.51.100.1", "api_key=k-123").CombinedOutput()
			if text := string(out); err != nil || !strings.Contains(text, "overridden") || strings.Contains(text, " 0 of 100") ||
				strings.Contains(text, "k-123 ") {
				t.Errorf("explain: %v\n%s", err, text)
			}
		})
	}
}

// TestHashIsNotAKey sends the hash of a victim's key as a key. It must count as another client.
func TestHashIsNotAKey(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	node := startServer(t, redisConfig(redis)+identityConfig, "rules: [{id: all, by: [api_key], limit: 100/hour}]\n")
	rule := headgate.Rule{ID: "all", By: []string{"api_key"}, Limit: headgate.PerHour(100)}
	all := entryPoints(t, redis, node, rule)
	for _, e := range all {
		for range 20 {
			e.check(t, complete(clientRequest{key: headgate.HashKey("victim")}))
		}
	}
	left := post(t, node, "/v1/peek", `{"attributes": {"api_key": "victim"}}`)
	if len(left.Limits) != 1 || left.Limits[0].Remaining != 100 {
		t.Errorf("the victim has %+v left of 100", left.Limits)
	}
	if r := post(t, node, "/v1/check", fmt.Sprintf(`{"attributes": {"api_key_hash": %q}}`, headgate.HashKey("victim"))); !r.Allowed ||
		r.Limits[0].Remaining != 99 {
		t.Errorf("api_key_hash: %+v", r)
	}
	for _, attributes := range []string{`"api_key_hash": "victim"`, fmt.Sprintf(`"api_key_hash": %q, "api_key": "a"`, headgate.HashKey("victim"))} {
		if r := post(t, node, "/v1/check", `{"attributes": {`+attributes+`}}`); r.status != http.StatusBadRequest {
			t.Errorf("%s: %+v", attributes, r)
		}
	}
}

// TestKeysDoNotLeak sends a key through every entry point, allowed and denied, with subjects shown in plain text, and looks for it in
// everything that is stored or shown: Redis, log, metrics, readiness.
func TestKeysDoNotLeak(t *testing.T) {
	t.Parallel()
	const key = "k-4711-must-not-be-seen"
	redis := startRedis(t)
	node := startServer(t, redisConfig(redis)+identityConfig+"show_subjects: clear\n", `rules:
  - {id: keys, by: [api_key], limit: 3/hour}
  - {id: entries, match: {descriptor.api_key: {absent: false}}, by: [descriptor.api_key], limit: 3/hour}
  - {id: chosen, match: {api_key: k-4711-must-not-be-seen}, by: [ip], limit: 3/hour}
`)
	rule := headgate.Rule{ID: "keys", By: []string{"api_key"}, Limit: headgate.PerHour(3)}
	for _, e := range entryPoints(t, redis, node, rule) {
		for range 3 {
			e.check(t, complete(clientRequest{key: key}))
		}
	}
	if r := post(t, node, "/v1/check", fmt.Sprintf(`{"attributes": {"api_key": %q, "ip": "192.0.2.1"}}`, key)); r.Allowed || len(r.Limits) < 2 {
		t.Errorf("%+v", r)
	}
	shown := map[string]string{"the log": node.Output()}
	for _, path := range []string{"/metrics", "/readyz"} {
		text, err := node.Fetch(t.Context(), http.MethodGet, node.Ops, path, "")
		if err != nil {
			t.Fatal(err)
		}
		shown[path] = string(text)
	}
	stored, _ := redis.Must(t, "KEYS", "*").([]any)
	for _, name := range stored {
		shown["Redis"] += fmt.Sprint(name)
		if kind := redis.Must(t, "TYPE", fmt.Sprint(name)); kind == "hash" {
			shown["Redis"] += fmt.Sprint(redis.Must(t, "HGETALL", fmt.Sprint(name)))
		}
	}
	for where, text := range shown {
		if text == "" {
			t.Errorf("%s is empty", where)
		}
		if strings.Contains(text, key) {
			t.Errorf("%s contains the key", where)
		}
	}
}

// TestSecondAPIKey sends a second API key with each request. Only the backend knows which one counts: the client must not become
// a new client each time, nor one without a key.
func TestSecondAPIKey(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	node := startServer(t, redisConfig(redis)+identityConfig, "rules: [{id: all, by: [api_key], on_missing: skip, limit: 3/hour}]\n")
	passed := 0
	for i := range 20 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+node.HTTP+"/v1/authorize", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"X-Forwarded-Uri": {"/api"}, "X-Forwarded-Method": {"GET"}, "X-Forwarded-For": {"192.0.2.1"}}
		r.Header["X-Api-Key"] = []string{"good", fmt.Sprint("x", i)}
		if i%2 == 1 {
			r.Header["X-Api-Key"] = []string{fmt.Sprintf("good, x%d", i)}
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			passed++
		}
	}
	t.Logf("%d of 20 requests with a second key were allowed by a limit of 3", passed)
	if passed != 3 {
		t.Errorf("%d of 20 allowed by a limit of 3", passed)
	}
}
