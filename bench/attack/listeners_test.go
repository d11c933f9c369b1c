package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/server/adminapi"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// connectionFailed is the result of a request whose connection failed or was closed.
const connectionFailed = "connection failed"

// request sends an HTTP request and returns its status, or connectionFailed.
func (h *securedServer) request(t *testing.T, address, method, path, certificate string, header http.Header) string {
	t.Helper()
	scheme := "http"
	if h.secure && address != h.ops {
		scheme = "https"
	}
	transport := &http.Transport{TLSClientConfig: h.tls(certificate)}
	defer transport.CloseIdleConnections()
	body := ""
	if method == http.MethodPost {
		body = `{"attributes": {"ip": "192.0.2.1"}}`
	}
	request, err := http.NewRequestWithContext(t.Context(), method, scheme+"://"+address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Do(request)
	if err != nil {
		return connectionFailed
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return strconv.Itoa(response.StatusCode)
}

// call makes a gRPC call and returns its code, or connectionFailed.
func (h *securedServer) call(t *testing.T, service, certificate string, tokens []string) string {
	t.Helper()
	creds := insecure.NewCredentials()
	if c := h.tls(certificate); c != nil {
		creds = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient(h.grpc, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, metadata.MD{"x-headgate-token": tokens})
	switch service {
	case "Check":
		_, err = checkv1.NewCheckServiceClient(conn).Check(ctx, &checkv1.CheckRequest{Attributes: map[string]string{"ip": "192.0.2.1"}})
	case "CheckStream":
		var stream grpc.BidiStreamingClient[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse]
		if stream, err = checkv1.NewCheckServiceClient(conn).CheckStream(ctx); err == nil {
			_, err = stream.Recv()
		}
	case "ShouldRateLimit":
		_, err = rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "d"})
		if status.Code(err) == codes.InvalidArgument || status.Code(err) == codes.Unknown {
			err = nil // the call was accepted, and lacks a descriptor
		}
	case "Health":
		_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	}
	if status.Code(err) == codes.Unavailable {
		return connectionFailed
	}
	return status.Code(err).String()
}

// TestListenerCredentials tries every listener of servers with every kind of authentication, with every token and certificate.
// Callers without access are rejected on all paths, which is counted and logged without the token. All other callers are served.
func TestListenerCredentials(t *testing.T) {
	t.Parallel()
	for _, auth := range [][]string{nil, {"tokens"}, {"certificates"}, {"names"}, {"tokens", "names"}} {
		t.Run(strings.Join(append([]string{"auth"}, auth...), " "), func(t *testing.T) {
			t.Parallel()
			testListeners(t, newSecuredServer(t, auth...), strings.Join(auth, " "))
		})
	}
}

func testListeners(t *testing.T, h *securedServer, auth string) {
	cells, rejected := 0, 0
	certificates := []string{"none"}
	if h.secure {
		certificates = []string{"none", "gateway", "by URI", "other name", "expired", "of others"}
	}
	for _, certificate := range certificates {
		handshake := !h.secure || certificate == "gateway" || certificate == "by URI" || certificate == "other name"
		for _, token := range []string{"none", "no token", "caller", "self", "viewer", "editor", "admin", "unlisted", "two"} {
			tokens := []string{h.tokens[token]}
			switch token {
			case "none":
				tokens = nil
			case "two":
				tokens = []string{h.tokens["unlisted"], h.tokens["caller"]}
			}
			wantHTTP, wantGRPC := "200", codes.OK.String()
			switch {
			case !handshake:
				wantHTTP, wantGRPC = connectionFailed, connectionFailed
			case strings.Contains(auth, "tokens") && token != "caller":
				wantHTTP, wantGRPC = "401", codes.Unauthenticated.String()
			case strings.Contains(auth, "names") && certificate == "other name":
				wantHTTP, wantGRPC = "403", codes.PermissionDenied.String()
			}
			expect := func(target, got, want string) {
				t.Helper()
				cells++
				if want != got {
					t.Errorf("%s with token %q and certificate %q: %s, want %s", target, token, certificate, got, want)
				}
			}
			header := func() http.Header { return http.Header{"X-Headgate-Token": tokens} }
			for _, path := range []string{"GET /v1/authorize", "POST /v1/check", "POST /v1/check/batch", "POST /v1/nothing"} {
				method, target, _ := strings.Cut(path, " ")
				want := wantHTTP
				if want == "200" {
					want = map[string]string{"/v1/check/batch": "400", "/v1/nothing": "404"}[target]
				}
				got := h.request(t, h.http, method, target, certificate, header())
				if want == "" {
					want = "200"
				}
				expect("http "+path, got, want)
				if wantHTTP != "200" {
					rejected++
				}
			}
			for _, service := range []string{"Check", "CheckStream", "ShouldRateLimit"} {
				expect("grpc "+service, h.call(t, service, certificate, tokens), wantGRPC)
				if wantGRPC != codes.OK.String() {
					rejected++
				}
			}
			if handshake {
				expect("grpc Health", h.call(t, "Health", certificate, tokens), codes.OK.String())
			}
			expect("ops", h.request(t, h.ops, http.MethodGet, "/readyz", certificate, header()), "200")

			// The admin API accepts tokens of operators, in Authorization only, and certificates of any name.
			wantAdmin := "401"
			switch {
			case !handshake:
				wantAdmin = connectionFailed
				rejected++
			case token == "viewer" || token == "editor" || token == "admin":
				wantAdmin = "200"
			case token == "caller" || token == "self":
				wantAdmin = "403"
			}
			if len(tokens) == 1 {
				expect("admin", h.request(t, h.admin, http.MethodGet, "/v1/rate-limit/top", certificate,
					http.Header{"Authorization": {"Bearer " + tokens[0]}}), wantAdmin)
				if handshake {
					expect("admin by the callers' header", h.request(t, h.admin, http.MethodGet, "/v1/rate-limit/top", certificate, header()), "401")
				}
			} else if !handshake {
				rejected--
			}
		}
	}
	checkRejections(t, h, rejected)
	t.Logf("%d cells, %d of them rejected", cells, rejected)
}

var rejections = regexp.MustCompile(`(?m)^headgate_callers_rejected_total\{.*\} (\d+)$`)

// callerRejected is part of the log line about a rejected caller.
const callerRejected = "caller rejected"

// checkRejections checks that rejections are counted, logged and reported by readiness, and that no log contains a token.
func checkRejections(t *testing.T, h *securedServer, want int) {
	t.Helper()
	counted, logged := 0, strings.Count(h.Output(), callerRejected)
	for _, match := range rejections.FindAllStringSubmatch(h.read(t, "/metrics"), -1) {
		n := 0
		_, _ = fmt.Sscan(match[1], &n)
		counted += n
	}
	// A client that is rejected in the handshake may retry once.
	if counted < want || counted > 2*want {
		t.Errorf("%d rejections were counted, want %d", counted, want)
	}
	var report struct {
		Status  string
		Callers *struct{ Rejected int }
	}
	if err := json.Unmarshal([]byte(h.read(t, "/readyz")), &report); err != nil {
		t.Fatal(err)
	}
	if want == 0 && (report.Callers != nil || logged > 0) {
		t.Errorf("unexpected rejections: %+v, logged %d times", report, logged)
	}
	if want > 0 && (report.Status != "degraded" || report.Callers == nil || report.Callers.Rejected != counted) {
		t.Errorf("readiness reports %+v, want %d rejections", report, counted)
	}
	if want > 0 && (logged == 0 || logged > 12) { // one line for each reason and listener
		t.Errorf("%d log lines for %d rejections", logged, want)
	}
	for name, token := range h.tokens {
		if token != "" && strings.Contains(h.Output(), token) {
			t.Errorf("the log contains the token of %s", name)
		}
	}
}

func (h *securedServer) read(t *testing.T, path string) string {
	t.Helper()
	response, err := http.Get("http://" + h.ops + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestListenerAddresses tries every listener on every kind of address with every kind of authentication: on an address that other
// machines reach, the data plane requires authentication or listen.open, and the admin API requires TLS and tokens.
func TestListenerAddresses(t *testing.T) {
	t.Parallel()
	redis, ours := startRedis(t), newAuthority(t)
	server := leaf(t, ours, "server.example", time.Time{})
	_, line, err := adminapi.NewToken("ann", "viewer")
	if err != nil {
		t.Fatal(err)
	}
	auth := map[string]string{ //nolint:gosec // G101: names of files
		"none": "", "tokens": "tokens_file: tokens", "open": "open: true",
		"certificates": "tls: {cert_file: cert, key_file: key, client_ca_file: ca}", "TLS": "tls: {cert_file: cert, key_file: key}",
	}
	cells, rejected := 0, 0
	hosts := []string{"127.0.0.1", "", "[::]"}
	if long() {
		hosts = append(hosts, "[::1]", "localhost", "0.0.0.0")
	}
	for _, host := range hosts {
		external := host == "" || host == "0.0.0.0" || host == "[::]"
		for method, text := range auth {
			for _, listener := range []string{"http", "grpc", "ops", "admin"} {
				for _, operators := range []bool{false, true} {
					if operators && listener != "admin" {
						continue
					}
					want := !external
					switch listener {
					case "ops":
						want = true
					case "http", "grpc":
						want = want || method != "none" && method != "TLS"
					case "admin":
						want = want || operators && (method == "TLS" || method == "certificates")
					}
					addresses := map[string]string{"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "ops": "127.0.0.1:0", "admin": "127.0.0.1:0"}
					addresses[listener] = host + ":0"
					config := fmt.Sprintf("rules: rules.yaml\nredis: {address: \"redis://%s\"}\nlisten:\n  http: %q\n  grpc: %q\n  ops: %q\n  admin: %q\n  %s\n",
						redis.Addr(), addresses["http"], addresses["grpc"], addresses["ops"], addresses["admin"], text)
					if operators {
						config += "admin: {tokens_file: tokens}\n"
					}
					dir := t.TempDir()
					for name, text := range map[string]string{
						"config.yaml": config, "rules.yaml": permissiveRules, "tokens": line + "\n",
						"cert": server.CertPEM, "key": server.KeyPEM,
						"ca": ours.CertPEM,
					} {
						if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
							t.Fatal(err)
						}
					}
					cells++
					if !want {
						rejected++
					}
					expectStarts(t, filepath.Join(dir, "config.yaml"), "listen."+listener, want)
				}
			}
		}
	}
	t.Logf("%d cells, %d of them rejected", cells, rejected)
}
