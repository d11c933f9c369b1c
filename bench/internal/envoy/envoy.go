// Package envoy runs a real Envoy in front of a real nginx, for suites that measure rate limit services. It knows nothing of
// what these services do.
package envoy

import (
	"bufio"
	"embed"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/testenv"
)

// configs are templates, executed with a Proxy.
//
//go:embed nginx.conf envoy.yaml
var configs embed.FS

// Route is a listener of Envoy and the rate limit service that it calls with the user; no service if Service is empty.
type Route struct {
	Listen, Service string
	// Clients are connections to the listener.
	Clients []*Client
}

// Proxy is one Envoy with all routes, in front of one nginx.
type Proxy struct {
	*testenv.Program
	Admin, Upstream string
	Routes          []*Route
}

// Start starts Envoy and nginx, with a route for each service address, and opens the given number of connections to each route.
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
	for _, config := range template.Must(template.New("").Funcs(functions).ParseFS(configs, "*")).Templates() {
		var out strings.Builder
		testenv.NoError(t, config.Execute(&out, p))
		testenv.WriteFiles(t, dir, map[string]string{config.Name(): out.String()})
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
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.Listen)
			testenv.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			r.Clients = append(r.Clients, &Client{conn: conn, responses: bufio.NewReader(conn)})
		}
	}
	return p
}

// ServiceCalls returns how often Envoy has called the service of a route.
func (p *Proxy) ServiceCalls(t testing.TB, route int) int {
	t.Helper()
	name := fmt.Sprintf("cluster.service%d.upstream_rq_total", route)
	text, _, err := fleet.Fetch(t.Context(), http.DefaultClient, http.MethodGet, "http://"+p.Admin+"/stats?filter="+name, "")
	testenv.NoError(t, err)
	calls, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(text), name+":")))
	testenv.NoError(t, err)
	return calls
}
