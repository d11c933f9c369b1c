package istio

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/headgate/headgate/internal/testenv"
)

// cluster is the name that Istio gives Headgate's service.
const cluster = "outbound|8081||headgate.headgate.svc.cluster.local"

// readFilter returns the spec of the example. A field that Istio does not know fails the test.
func readFilter(t *testing.T) *networking.EnvoyFilter {
	t.Helper()
	text, err := os.ReadFile("envoyfilter.yaml")
	testenv.NoError(t, err)
	var resource struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name, Namespace string }
		Spec       map[string]any
	}
	testenv.NoError(t, yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField()).Decode(&resource))
	if resource.APIVersion != "networking.istio.io/v1alpha3" || resource.Kind != "EnvoyFilter" || resource.Metadata.Namespace != "istio-system" {
		t.Errorf("%+v", resource)
	}
	spec, err := json.Marshal(resource.Spec)
	testenv.NoError(t, err)
	var filter networking.EnvoyFilter
	testenv.NoError(t, protojson.Unmarshal(spec, &filter))
	return &filter
}

// gateway returns the config of an Envoy with a listener, a route and clusters as Istio makes them, and the patches of the example.
func gateway(t *testing.T, address, application, headgate string) []byte {
	t.Helper()
	host := map[string]any{
		"name": "api.example.com:80", "domains": []any{"*"},
		"routes": []any{map[string]any{"match": map[string]any{"prefix": "/"}, "route": map[string]any{"cluster": "application"}}},
	}
	filters := []any{map[string]any{
		"name":         "envoy.filters.http.router",
		"typed_config": map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
	}}
	for _, patch := range readFilter(t).ConfigPatches {
		value := patch.Patch.Value.AsMap()
		where, how := patch.ApplyTo, patch.Patch.Operation
		switch {
		case patch.Match.Context != networking.EnvoyFilter_GATEWAY:
			t.Fatalf("the patch is for %s", patch.Match.Context)
		case where == networking.EnvoyFilter_HTTP_FILTER && how == networking.EnvoyFilter_Patch_INSERT_BEFORE:
			next := patch.Match.GetListener().GetFilterChain().GetFilter()
			if next.GetName() != "envoy.filters.network.http_connection_manager" || next.GetSubFilter().GetName() != "envoy.filters.http.router" {
				t.Fatalf("inserted before %v", next)
			}
			config, ok := value["typed_config"].(map[string]any)
			if !ok || config["timeout"] != "0.02s" {
				t.Fatalf("%v", value)
			}
			config["timeout"] = "5s" // the machine may be busy
			filters = append([]any{value}, filters...)
		case where == networking.EnvoyFilter_VIRTUAL_HOST && how == networking.EnvoyFilter_Patch_MERGE:
			for key, merged := range value {
				host[key] = merged
			}
		default:
			t.Fatalf("%s %s: the test cannot apply it", how, where)
		}
	}
	config, err := json.Marshal(map[string]any{"static_resources": map[string]any{
		"listeners": []any{map[string]any{
			"address": socket(t, address),
			"filter_chains": []any{map[string]any{"filters": []any{map[string]any{
				"name": "envoy.filters.network.http_connection_manager",
				"typed_config": map[string]any{
					"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
					"stat_prefix": "outbound_0.0.0.0_8080", "use_remote_address": true,
					"route_config": map[string]any{"name": "http.80", "virtual_hosts": []any{host}}, "http_filters": filters,
				},
			}}}},
		}},
		"clusters": []any{
			upstream(t, "application", application, nil),
			upstream(t, cluster, headgate, map[string]any{
				"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": map[string]any{
					"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
					"explicit_http_config": map[string]any{"http2_protocol_options": map[string]any{}},
				},
			}),
		},
	}})
	testenv.NoError(t, err)
	return config
}

func upstream(t *testing.T, name, address string, options map[string]any) map[string]any {
	t.Helper()
	return map[string]any{
		"name": name, "typed_extension_protocol_options": options,
		"load_assignment": map[string]any{"cluster_name": name, "endpoints": []any{map[string]any{
			"lb_endpoints": []any{map[string]any{"endpoint": map[string]any{"address": socket(t, address)}}},
		}}},
	}
}

func socket(t *testing.T, address string) map[string]any {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	testenv.NoError(t, err)
	return map[string]any{"socket_address": map[string]any{"address": host, "port_value": json.Number(port)}}
}

// TestGateway tests that an Envoy with the patches of the example applies Headgate's limits, and authenticates with its token.
func TestGateway(t *testing.T) {
	binary := testenv.BuildHeadgate(t)
	envoy := testenv.Find(t, "envoy")
	dir := t.TempDir()
	output, err := exec.CommandContext(t.Context(), binary, "token", "create", "gateway", "--role", "caller").Output()
	testenv.NoError(t, err)
	var token, line string
	for text := range strings.Lines(string(output)) {
		switch fields := strings.Fields(text); {
		case len(fields) == 3 && len(fields[0]) == 64:
			line = text
		case strings.Contains(text, "hgt_"):
			token = fields[len(fields)-1]
		}
	}
	if token == "" || line == "" {
		t.Fatalf("no token: %s", output)
	}
	checks := testenv.FreeAddress(t)
	http1 := testenv.FreeAddress(t)
	testenv.WriteFiles(t, dir, map[string]string{
		"tokens": line,
		"config.yaml": fmt.Sprintf("listen: {http: %q, grpc: %q, ops: off, admin: off, tokens_file: tokens}\nredis: {address: %q, deadline: 1s}\nrules: [rules.yaml]\n",
			http1, checks, "redis://"+testenv.Start(t, testenv.Redis).Addr()),
		"rules.yaml": "rules: [{id: login-by-ip, match: {path: /login, method: POST}, by: [ip], limit: 5/minute}]\n",
	})
	serve := exec.Command(binary, "serve", "--config", filepath.Join(dir, "config.yaml"))
	serve.Dir = dir
	testenv.Run(t, serve, checks)

	reached := 0
	application := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	t.Cleanup(application.Close)
	address := testenv.FreeAddress(t)
	testenv.WriteFiles(t, dir, map[string]string{"envoy.json": string(gateway(t, address, application.Listener.Addr().String(), checks))})
	run := exec.Command(envoy, "-c", filepath.Join(dir, "envoy.json"), "--concurrency", "1", "--use-dynamic-base-id", "-l", "warn")
	run.Env = append(os.Environ(), "HEADGATE_TOKEN="+token)
	testenv.Run(t, run, address)

	for i, path := range []string{"/login", "/login?x=1", "//login", "/%6cogin", "/x/../login", "/login"} {
		want := http.StatusOK
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+path, http.NoBody)
		testenv.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		testenv.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		testenv.NoError(t, err)
		testenv.NoError(t, response.Body.Close())
		header := response.Header
		if response.StatusCode != want || header.Get("X-RateLimit-Remaining") != strconv.Itoa(max(4-i, 0)) || (header.Get("Retry-After") != "") != (i == 5) {
			t.Errorf("%s: %d, %v, %s, want %d", path, response.StatusCode, header, body, want)
		}
	}
	if reached != 5 {
		t.Errorf("the application got %d requests, want 5", reached)
	}
}

// TestService tests that the cluster of the example is the service's.
func TestService(t *testing.T) {
	text, err := os.ReadFile("service.yaml")
	testenv.NoError(t, err)
	var service struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct {
			Ports []struct {
				Port        int
				AppProtocol string `yaml:"appProtocol"`
			}
		}
	}
	testenv.NoError(t, yaml.Unmarshal(text, &service))
	port, meta := service.Spec.Ports[0], service.Metadata
	if got := fmt.Sprintf("outbound|%d||%s.%s.svc.cluster.local", port.Port, meta.Name, meta.Namespace); got != cluster || port.AppProtocol != "grpc" {
		t.Errorf("%s, %+v", got, port)
	}
	filter, err := os.ReadFile("envoyfilter.yaml")
	testenv.NoError(t, err)
	if !strings.Contains(string(filter), cluster) {
		t.Errorf("envoyfilter.yaml does not have %s", cluster)
	}
}
