package attack

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/ruledoc"
)

// proxyServer is a proxy that chooses a route, checks with Headgate, and forwards the request.
type proxyServer struct {
	program    string
	args       []string
	file       string
	config     func(w *proxyWorld) string
	ignoreCase bool
}

// proxyWorld has the addresses for a config.
type proxyWorld struct {
	headgate    *fleet.Node
	listen, app string
	port        string // of listen
}

// proxyServers returns the proxies of the examples, with the settings that change how they parse paths.
func proxyServers() map[string]proxyServer {
	nginx := func(options string) proxyServer {
		return proxyServer{
			program: "nginx", file: "nginx.conf", args: []string{"-p", ".", "-c", "nginx.conf", "-e", "stderr", "-g", "master_process off;"},
			config: func(w *proxyWorld) string { return nginxConfig(w, options) },
		}
	}
	envoy := func(options string) proxyServer {
		return proxyServer{
			program: "envoy", file: "envoy.yaml", args: []string{"-c", "envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id", "-l", "warn"},
			config: func(w *proxyWorld) string { return envoyConfig(w, options) },
		}
	}
	return map[string]proxyServer{
		"nginx":                  nginx(""),
		"nginx without merging":  nginx("merge_slashes off;"),
		"envoy":                  envoy(""),
		"envoy normalizing":      envoy("normalize_path: true"),
		"envoy merging":          envoy("normalize_path: true\n                merge_slashes: true"),
		"envoy decoding slashes": envoy("normalize_path: true\n                path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD"),
		"caddy": {
			program: "caddy", file: "Caddyfile", args: []string{"run"}, config: caddyConfig, ignoreCase: true, // as its matchers do
		},
	}
}

// nginxConfig returns the config of the example, with headers that name the chosen location.
func nginxConfig(w *proxyWorld, options string) string {
	var locations strings.Builder
	for _, r := range routes {
		if r.method != "" {
			continue // nginx locations do not match methods
		}
		match := "= " + r.path
		if prefix, deep := strings.CutSuffix(r.path, "**"); deep {
			match = prefix
		} else if strings.Contains(r.path, "{") {
			match = "~ ^" + parameter.ReplaceAllString(r.path, "[^/]+") + "$"
		}
		fmt.Fprintf(&locations, "location %s { add_header X-Route %s always; add_header X-Path $uri always;\n"+
			"auth_request /_headgate; auth_request_set $policy $upstream_http_ratelimit_policy; add_header RateLimit-Policy $policy always;\n"+
			"proxy_pass http://%s; }\n", match, r.rule, w.app)
	}
	return `daemon off; pid nginx.pid; error_log stderr crit; events {}
http {
	access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
	server {
		listen ` + w.listen + `;
		keepalive_requests 1000000;
		` + options + `
		` + locations.String() + `
		location = /_headgate {
			internal;
			proxy_pass http://` + w.headgate.HTTP + `/v1/authorize;
			proxy_method HEAD; proxy_pass_request_body off; proxy_set_header Content-Length "";
			proxy_pass_request_headers off;
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Forwarded-Method $request_method;
			proxy_set_header X-Forwarded-Uri $request_uri;
			proxy_set_header X-Forwarded-Host $host;
		}
	}
}
`
}

var parameter = regexp.MustCompile(`\{[a-z]+\}`)

// caddyConfig returns the config of the example, with headers that name the chosen handler.
func caddyConfig(w *proxyWorld) string {
	var handlers strings.Builder
	for _, r := range routes {
		path := strings.Replace(parameter.ReplaceAllString(r.path, "*"), "**", "*", 1)
		matcher := "path " + path
		if strings.Contains(r.path, "{") {
			// A star at the end of a path matches the rest of it, including slashes.
			matcher = "path_regexp (?i)^" + parameter.ReplaceAllString(r.path, "[^/]+") + "$"
		}
		if r.method != "" {
			matcher += "\n\t\t\tmethod " + r.method
		}
		fmt.Fprintf(&handlers, "\t\t@%[1]s {\n\t\t\t%[2]s\n\t\t}\n\t\thandle @%[1]s {\n\t\t\theader X-Route %[1]s\n\t\t\trespond ok\n\t\t}\n", r.rule, matcher)
	}
	return `{
	admin off
}
http://:` + w.port + ` {
	bind 127.0.0.1
	route {
		reverse_proxy ` + w.headgate.HTTP + ` {
			method GET
			rewrite /v1/authorize
			header_up X-Forwarded-Method {method}
			header_up X-Forwarded-Uri {uri}
			header_up -X-Original-Uri
			header_up -X-Original-Method
			@allowed status 200
			handle_response @allowed {
				copy_response_headers {
					include RateLimit-Policy
				}
			}
		}
` + handlers.String() + `	}
}
`
}

// envoyConfig returns the config of the example, with headers that name the chosen route.
func envoyConfig(w *proxyWorld, options string) string {
	var table strings.Builder
	for _, r := range routes {
		match := "path: " + r.path
		if prefix, deep := strings.CutSuffix(r.path, "**"); deep {
			match = "prefix: " + prefix
		} else if strings.Contains(r.path, "{") {
			match = "safe_regex: {regex: '" + parameter.ReplaceAllString(r.path, "[^/]+") + "'}"
		}
		if r.method != "" {
			match += ", headers: [{name: ':method', string_match: {exact: " + r.method + "}}]"
		}
		fmt.Fprintf(&table, "%s- match: {%s}\n%s  response_headers_to_add: [{header: {key: X-Route, value: %s}}, {header: {key: X-Path, value: '%%REQ(:PATH)%%'}}]\n"+
			"%s  route: {cluster: app, rate_limits: [{actions: [{remote_address: {}}, {request_headers: {header_name: ':path', descriptor_key: path}}, "+
			"{request_headers: {header_name: ':method', descriptor_key: method}}]}]}\n", indent, match, indent, r.rule, indent)
	}
	socket := func(address string) string {
		host, port, _ := strings.Cut(address, ":")
		return "{socket_address: {address: " + host + ", port_value: " + port + "}}"
	}
	cluster := func(name, address string) string {
		return "load_assignment: {cluster_name: " + name + ", endpoints: [{lb_endpoints: [{endpoint: {address: " + socket(address) + "}}]}]}"
	}
	return `static_resources:
  listeners:
    - address: ` + socket(w.listen) + `
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ingress
                use_remote_address: true
                ` + options + `
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
` + table.String() + `                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: api
                      timeout: 5s
                      failure_mode_deny: true
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service: {envoy_grpc: {cluster_name: headgate}}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: app
      ` + cluster("app", w.app) + `
    - name: headgate
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      ` + cluster("headgate", w.headgate.GRPC) + `
`
}

const indent = "                        "

// startProxy starts a proxy that checks with a Headgate with the routes' rules, and returns a connection to it.
func startProxy(t *testing.T, p proxyServer, redis *testenv.Server) *rawConn {
	t.Helper()
	binary := testenv.Find(t, p.program)
	rules, err := (&ruledoc.Document{Source: routeRules(p.ignoreCase)}).YAML()
	if err != nil {
		t.Fatal(err)
	}
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	w := &proxyWorld{
		headgate: startServer(t, "redis: {address: \"redis://"+redis.Addr()+"\", deadline: 1s}\nidentity: {trusted_proxies: [127.0.0.1/32]}", string(rules)),
		listen:   testenv.FreeAddress(t), app: app.Listener.Addr().String(),
	}
	_, w.port, _ = strings.Cut(w.listen, ":")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, p.file), []byte(p.config(w)), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary, p.args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME=", "XDG_DATA_HOME=") // Caddy keeps files there
	testenv.Run(t, command, w.listen)
	return dialRaw(t, w.listen)
}

// policyNames returns the rules that a response names.
func policyNames(_ spelling, h http.Header) []string {
	names := []string{}
	for _, m := range policyName.FindAllStringSubmatch(strings.Join(h.Values("RateLimit-Policy"), ", "), -1) {
		names = append(names, m[1])
	}
	return names
}

var policyName = regexp.MustCompile(`"([^"]+)"`)

// inFront returns a function for the rules that a limiter in front of the proxy would have charged, which sees the request as it was
// sent. They are nil if net/http rejects such a request.
func inFront(t *testing.T, ignoreCase bool) func(spelling, http.Header) []string {
	t.Helper()
	limiter := newLimiter(t, memstore.New(memstore.Options{}), routeRules(ignoreCase)...)
	resolver, err := identity.New(identity.Options{Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resolver.Close)
	return func(s spelling, _ http.Header) []string {
		text := strings.Join(append([]string{s.line + " HTTP/1.1", "Host: x"}, append(s.headers, "", "")...), "\r\n")
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return nil
		}
		r.RemoteAddr = "192.0.2.1:1234"
		d, err := limiter.Check(t.Context(), headgate.Request{Attributes: resolver.Attributes(r)})
		if err != nil {
			t.Fatal(err)
		}
		rules := []string{}
		for _, l := range d.Limits {
			rules = append(rules, l.Rule)
		}
		return rules
	}
}

// TestSpellingsThroughProxies sends spellings to real proxies that check with Headgate: the rule of the chosen route must be
// charged, and must also be charged by a limiter in front of the proxy.
func TestSpellingsThroughProxies(t *testing.T) {
	t.Parallel()
	const seed = 3
	spellings := corpus(seed, size(300, 10_000))
	redis := startRedis(t)
	for name, p := range proxyServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := startProxy(t, p, redis)
			front := inFront(t, p.ignoreCase)
			var stats spellingStats
			for _, s := range spellings {
				if !strings.HasPrefix(s.line, "CONNECT") { // CONNECT makes a tunnel
					stats.send(t, seed, s, conn, policyNames, front)
				}
			}
			stats.log(t)
		})
	}
}
