package attack

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// devServer runs headgate serve --dev and returns the addresses of its check API and its admin API.
func devServer(t *testing.T) (checks, admin string) {
	t.Helper()
	checks, admin = testenv.FreeAddress(t), testenv.FreeAddress(t)
	config := filepath.Join(t.TempDir(), "config.yaml")
	rules := filepath.Join(filepath.Dir(config), "rules.yaml")
	for name, text := range map[string]string{
		config: fmt.Sprintf("rules: rules.yaml\nlisten: {http: %q, grpc: off, ops: off, admin: %q}\n", checks, admin),
		rules:  "rules: [{id: all, by: [ip], limit: 5/hour}]\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(headgateProgram(t), "serve", "--dev", "--config", config)
	testenv.Run(t, command, admin)
	return checks, admin
}

// sendAs sends a request with a Host and headers, and returns the status.
func sendAs(ctx context.Context, t *testing.T, method, url, host, body string, headers ...string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var text bytes.Buffer
	_, _ = text.ReadFrom(response.Body)
	t.Logf("%s %s Host %s %v: %d %.150s", method, url, host, headers, response.StatusCode, text.String())
	return response.StatusCode
}

// TestCrossSiteRequests sends what a browser sends for a page of another site without a CORS preflight: no Content-Type that requires
// one, and headers that name the origin. Programs, which send none of these headers, are served.
func TestCrossSiteRequests(t *testing.T) {
	t.Parallel()
	checks, admin := devServer(t)
	for _, url := range []string{
		"http://" + checks + "/v1/check", "http://" + checks + "/v1/check/batch", "http://" + checks + "/v1/reserve",
		"http://" + admin + "/v1/explain", "http://" + admin + "/v1/rate-limit/rules/all/reset",
	} {
		body := `{"attributes": {"ip": "192.0.2.1"}}`
		switch {
		case strings.HasSuffix(url, "batch"):
			body = `{"requests": [` + body + `]}`
		case strings.HasSuffix(url, "explain"):
			body = `{"attributes": {"ip": "192.0.2.1", "path": "/"}}`
		case strings.HasSuffix(url, "reset"):
			body = `{"subject": {"ip": "192.0.2.1"}, "reason": "a visitor's browser"}`
		}
		for _, headers := range [][]string{
			{"Origin", "http://evil.example"},
			{"Origin", "null"},
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"},
			{"Sec-Fetch-Site", "same-site", "Origin", "http://other.localhost"},
			{"Origin", "http://evil.example", "Content-Type", "application/json"},
			{"Origin", "http://evil.example", "Content-Type", "application/x-www-form-urlencoded"},
		} {
			if status := sendAs(t.Context(), t, http.MethodPost, url, "", body, headers...); status != http.StatusForbidden &&
				status != http.StatusUnsupportedMediaType {
				t.Errorf("%s with %v: %d", url, headers, status)
			}
		}
		for _, headers := range [][]string{
			nil,
			{"Content-Type", "application/json"},
			{"Content-Type", "application/json", "Origin", "http://" + strings.Split(url, "/")[2]},
			{"Content-Type", "application/json; charset=utf-8", "Sec-Fetch-Site", "same-origin"},
		} {
			if status := sendAs(t.Context(), t, http.MethodPost, url, "", body, headers...); status >= http.StatusBadRequest {
				t.Errorf("a program's request to %s with %v: %d", url, headers, status)
			}
		}
	}
	// A proxy forwards the headers of its client, and may use its method.
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if status := sendAs(t.Context(), t, method, "http://"+checks+"/v1/authorize", "", "", "Origin", "http://evil.example",
			"Sec-Fetch-Site", "cross-site"); status != http.StatusOK {
			t.Errorf("forward-auth with %s: %d", method, status)
		}
	}
}

// TestDNSRebinding calls the admin API of headgate serve --dev, which requires no token, as a web page does whose name was rebound to
// this machine: the browser then takes both for the same site.
func TestDNSRebinding(t *testing.T) {
	t.Parallel()
	_, admin := devServer(t)
	_, port, _ := strings.Cut(admin, ":")
	for host, allowed := range map[string]bool{
		"evil.example:" + port: false, "evil.example": false, "localhost.evil.example:" + port: false, "192.0.2.1:" + port: false,
		"127.0.0.1.evil.example": false, "localhost@evil.example": false, "[2001:db8::1]:" + port: false, "127.evil.example": false,
		"0.0.0.0:" + port: false, "evillocalhost": false,
		"localhost:" + port: true, "127.0.0.1:" + port: true, "127.9.9.9": true, "[::1]:" + port: true, "[::1]": true,
		"headgate.localhost:" + port: true, "LOCALHOST": true, "localhost.:" + port: true, "": true,
	} {
		status := sendAs(t.Context(), t, http.MethodGet, "http://"+admin+"/v1/rate-limit/top", host, "", "Sec-Fetch-Site", "same-origin")
		if (status == http.StatusOK) != allowed {
			t.Errorf("Host %q: %d", host, status)
		}
	}
}
