package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/headgate/headgate/internal/testenv"
)

// forwardAuth does what the middleware forwardAuth of Traefik 3.7 does, with the fields that the example uses.
type forwardAuth struct {
	Address             string
	TrustForwardHeader  *bool    `yaml:"trustForwardHeader"`
	AuthRequestHeaders  []string `yaml:"authRequestHeaders"`
	MaxResponseBodySize int64    `yaml:"maxResponseBodySize"`
	TLS                 struct{ CA, Cert, Key string }

	client *http.Client
	next   http.Handler
}

// readForwardAuth reads the example in a directory with the certificates.
func readForwardAuth(t testing.TB, dir string) *forwardAuth {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "dynamic.yaml"))
	testenv.NoError(t, err)
	var config struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth forwardAuth `yaml:"forwardAuth"`
			}
			Routers map[string]struct {
				Rule, Service string
				Middlewares   []string
			}
			Services map[string]struct {
				LoadBalancer struct{ Servers []struct{ URL string } } `yaml:"loadBalancer"`
			}
		}
	}
	testenv.NoError(t, yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField()).Decode(&config))
	router := config.HTTP.Routers["api"]
	f := config.HTTP.Middlewares[router.Middlewares[0]].ForwardAuth
	application, err := url.Parse(config.HTTP.Services[router.Service].LoadBalancer.Servers[0].URL)
	testenv.NoError(t, err)
	if f.TrustForwardHeader == nil || *f.TrustForwardHeader || f.MaxResponseBodySize == 0 {
		t.Fatalf("the test expects other settings: %+v", f)
	}
	f.next = proxyTo(application)

	ca, err := os.ReadFile(filepath.Join(dir, f.TLS.CA))
	testenv.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, f.TLS.Cert), filepath.Join(dir, f.TLS.Key))
	testenv.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport, Timeout: timeout}
	return &f
}

func (f *forwardAuth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, f.Address, http.NoBody)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	for _, name := range f.AuthRequestHeaders {
		if values := r.Header.Values(name); len(values) > 0 {
			request.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	ip, _, _ := net.SplitHostPort(r.RemoteAddr)
	for name, value := range map[string]string{
		"For": ip, "Method": r.Method, "Proto": "http", "Port": "80", "Host": r.Host, "Uri": r.URL.RequestURI(),
	} {
		request.Header.Set("X-Forwarded-"+name, value)
	}
	response, err := f.client.Do(request)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, f.MaxResponseBodySize))
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if response.StatusCode/100 == 2 {
		f.next.ServeHTTP(w, r)
		return
	}
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(body) // an error means that the client disconnected
}

// proxyTo returns a handler that forwards requests.
func proxyTo(target *url.URL) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := r.Clone(r.Context())
		request.RequestURI, request.URL.Scheme, request.URL.Host = "", target.Scheme, target.Host
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body) // an error means that the client disconnected
	})
}

// TestTraefik tests the example with the requests that Traefik sends. Traefik itself is not tested.
func TestTraefik(t *testing.T) {
	binary := testenv.BuildHeadgate(t)
	exactIn(t, func(t testing.TB) *world { return newTraefikWorld(t, binary, "traefik.internal") }, testTraefik)
	t.Run("unavailable", func(t *testing.T) {
		w := newTraefikWorld(t, binary, "traefik.internal")
		w.headgate.Kill()
		if got := newClient(t, w.addresses["traefik"], "127.0.0.2").send("GET", "/", ""); got.status != http.StatusInternalServerError || w.app.reached() != 0 {
			t.Errorf("%d, %s", got.status, got.body)
		}
	})
	t.Run("another name", func(t *testing.T) {
		w := newTraefikWorld(t, binary, "other.internal")
		// Traefik passes every response on that is not a success.
		if got := newClient(t, w.addresses["traefik"], "127.0.0.2").send("GET", "/", ""); got.status != http.StatusForbidden || w.app.reached() != 0 {
			t.Errorf("%d, %s", got.status, got.body)
		}
	})
}

// newTraefikWorld starts Headgate with the config of the example, and what Traefik does, with a certificate of that name.
func newTraefikWorld(t testing.TB, binary, name string) *world {
	t.Helper()
	w := &world{t: t, binary: binary, app: newApplication(t)}
	w.addresses = map[string]string{
		"127.0.0.1:6379": testenv.Start(t, testenv.Redis).Addr(),
		"127.0.0.1:8080": testenv.FreeAddress(t),
		"127.0.0.1:8082": testenv.FreeAddress(t),
		"127.0.0.1:9000": w.app.address,
	}
	dir := w.render("traefik", "../gateways/rules.yaml", "rules.yaml")
	rules, err := os.ReadFile("../../examples/gateways/rules.yaml")
	testenv.NoError(t, err)
	server := testenv.NewCertificate(t, nil, &x509.Certificate{})
	caller := testenv.NewCertificate(t, nil, &x509.Certificate{DNSNames: []string{name}})
	testenv.WriteFiles(t, dir, map[string]string{
		"rules.yaml":   strings.ReplaceAll(string(rules), "by: [ip]", "by: [client]"), // so that a forged user would be counted
		"headgate.pem": server.CertPEM, "headgate-key.pem": server.KeyPEM, "headgate-ca.pem": server.CertPEM,
		"traefik.pem": caller.CertPEM, "traefik-key.pem": caller.KeyPEM, "traefik-ca.pem": caller.CertPEM,
	})
	w.config = filepath.Join(dir, "headgate.yaml")
	w.start()
	traefik := httptest.NewServer(readForwardAuth(t, dir))
	t.Cleanup(traefik.Close)
	w.addresses["traefik"] = traefik.Listener.Addr().String()
	return w
}

func testTraefik(w *world) {
	ann := newClient(w.t, w.addresses["traefik"], "127.0.0.2")
	for i := range 10 {
		forged := fmt.Sprintf("198.51.100.%d", i)
		ann.headers = http.Header{
			"X-Forwarded-For": {forged}, "X-Forwarded-Uri": {"/other"}, "X-Forwarded-Method": {"PUT"}, "X-User-Id": {forged}, "X-Original-Uri": {"/other"},
		}
		path := fmt.Sprintf("/a%%20page?q=%d", i)
		if got := ann.send("GET", path, ""); got.status != 200 || got.body != "application: GET "+path+" " || got.counted() {
			w.t.Errorf("%d, %v, %s", got.status, got.header, got.body)
		}
	}
	ann.expectDenied(gateway{}, "GET", "/", "pages-by-ip", 10)
	for range 5 {
		if got := ann.send("POST", "//login", "body"); got.status != 200 {
			w.t.Errorf("%d, %s", got.status, got.body)
		}
	}
	ann.expectDenied(gateway{}, "POST", "/x/../login", "login-by-ip", 5)
	if got := newClient(w.t, ann.gateway, "127.0.0.3").send("GET", "/", ""); got.status != 200 {
		w.t.Errorf("another client: %d, %s", got.status, got.body)
	}
	if n := w.app.reached(); n != 16 {
		w.t.Errorf("the application got %d requests, want 16", n)
	}
}
