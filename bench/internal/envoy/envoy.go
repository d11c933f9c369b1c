// Package envoy runs a real Envoy before a real nginx, for suites that measure the services it asks. It knows nothing of
// what they do.
package envoy

import (
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/testenv"
)

// Route is a listener of Envoy, and the service that it asks by the user: none if Service is empty.
type Route struct {
	Listen, Service string
	// Clients are its connections.
	Clients []*Client
}

// Proxy is one Envoy with all the routes, before one nginx.
type Proxy struct {
	*testenv.Program
	Admin, Upstream string
	Routes          []*Route
}

// Start starts both, with a route for the service at each address, and connects to each route so many times.
func Start(t testing.TB, connections int, services ...string) *Proxy {
	t.Helper()
	p := &Proxy{Admin: testenv.FreeAddress(t), Upstream: testenv.FreeAddress(t)}
	for _, service := range services {
		p.Routes = append(p.Routes, &Route{Listen: testenv.FreeAddress(t), Service: service})
	}
	dir := t.TempDir()
	functions := template.FuncMap{"socket": func(address string) string {
		host, port, _ := strings.Cut(address, ":")
		return "{socket_address: {address: " + host + ", port_value: " + port + "}}"
	}}
	for name, text := range map[string]string{"nginx.conf": nginxConfig, "envoy.yaml": envoyConfig} {
		var out strings.Builder
		testenv.NoError(t, template.Must(template.New(name).Funcs(functions).Parse(text)).Execute(&out, p))
		testenv.WriteFiles(t, dir, map[string]string{name: out.String()})
	}
	start := func(name, address string, args ...string) *testenv.Program {
		command := exec.CommandContext(t.Context(), testenv.Find(t, name), args...)
		command.Dir = dir
		return testenv.Run(t, command, address)
	}
	start("nginx", p.Upstream, "-p", dir, "-c", "nginx.conf", "-e", "stderr", "-g", "master_process off;")
	p.Program = start("envoy", p.Routes[len(services)-1].Listen,
		"-c", "envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id", "-l", "warn")
	for _, r := range p.Routes {
		for range connections {
			r.Clients = append(r.Clients, dial(t, r.Listen))
		}
	}
	return p
}

// Asked is how often Envoy has called the service of a route.
func (p *Proxy) Asked(t testing.TB, route int) int {
	t.Helper()
	name := fmt.Sprintf("cluster.service%d.upstream_rq_total", route)
	text, _, err := fleet.Ask(t.Context(), http.DefaultClient, http.MethodGet, "http://"+p.Admin+"/stats?filter="+name, "")
	testenv.NoError(t, err)
	asked, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(text), name+":")))
	testenv.NoError(t, err)
	return asked
}

const nginxConfig = `daemon off;
pid nginx.pid;
events {}
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	server {
		listen {{.Upstream}};
		keepalive_requests 1000000000;
		location / { return 200 "ok\n"; }
	}
}
`

// The timeout is long, and whoever does not answer by then is not passed: no variant is fast because it is left out.
const envoyConfig = `admin: {address: {{socket .Admin}}}
static_resources:
  listeners:
    {{- range $i, $r := .Routes}}
    - address: {{socket .Listen}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ingress{{$i}}
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: {prefix: /}
                          route:
                            cluster: upstream
                            {{- if .Service}}
                            rate_limits: [{actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]}]
                            {{- end}}
                http_filters:
                  {{- if .Service}}
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: api
                      timeout: 5s
                      failure_mode_deny: true
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service: {envoy_grpc: {cluster_name: service{{$i}}}}
                  {{- end}}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
    {{- end}}
  clusters:
    - name: upstream
      load_assignment:
        cluster_name: upstream
        endpoints: [{lb_endpoints: [{endpoint: {address: {{socket .Upstream}}}}]}]
    {{- range $i, $r := .Routes}}{{if .Service}}
    - name: service{{$i}}
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment:
        cluster_name: service{{$i}}
        endpoints: [{lb_endpoints: [{endpoint: {address: {{socket .Service}}}}]}]
    {{- end}}{{end}}
`
