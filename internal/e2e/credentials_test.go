package e2e

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/adminapi"
)

// testCredentials tests a gateway with a valid token, with an unknown token and without one. If Headgate rejects the gateway, its
// clients see the same as when Headgate is unavailable, and log and readiness report it to operators.
func testCredentials(t *testing.T, binary string, g gateway) {
	right, line, err := adminapi.NewToken("gateway", "caller")
	if err != nil {
		t.Fatal(err)
	}
	wrong, _, err := adminapi.NewToken("other", "caller")
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, tokens, line+"\n")
	const anywhere = "admin: off"
	edits := []string{anywhere, anywhere + "\n  tokens_file: " + tokens}

	t.Run("right token", func(t *testing.T) {
		exact(t, binary, func(w *world) {
			w.token = right
			c := newClient(w.t, g.run(w), "127.0.0.2")
			for remaining := 9; remaining >= 0; remaining-- {
				c.expectAllowed("GET", "/", "pages-by-ip", 10, remaining)
			}
			c.expectDenied(g, "GET", "/", "pages-by-ip", 10)
			if report := w.ready(); strings.Contains(report, "callers") {
				w.t.Errorf("a caller was rejected: %s", report)
			}
		}, edits...)
	})
	for name, rejected := range map[string]struct{ token, reason string }{
		"wrong token": {wrong, "unknown_token"}, "no token": {"", "no_token"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, binary, edits...)
			w.token = rejected.token
			open := newClient(t, g.run(w), "127.0.0.2")
			for range 12 {
				if got := open.send("GET", "/", ""); got.status != 200 || got.counted() || !strings.HasPrefix(got.body, "application: GET /") {
					t.Fatalf("fail open: %d, %v, %q", got.status, got.header, got.body)
				}
			}
			closed := newClient(t, g.run(w, g.closed...), "127.0.0.2")
			before := w.app.reached()
			if got := closed.send("GET", "/", ""); !g.failsClosed(got.status) || got.counted() || w.app.reached() != before {
				t.Errorf("fail closed: %d, %v, %q", got.status, got.header, got.body)
			}
			if n := strings.Count(w.headgate.Output(), "caller rejected"); n != 1 {
				t.Errorf("%d log lines, want 1:\n%s", n, w.headgate.Output())
			}
			report, reason := w.ready(), rejected.reason
			if g.name == "envoy" && reason == "no_token" {
				reason = "token" // Envoy sends a placeholder for an unset variable
			}
			if !strings.Contains(report, `"status":"degraded"`) || !strings.Contains(report, `"rejected":13`) || !strings.Contains(report, reason) {
				t.Errorf("readiness does not report it: %s", report)
			}
			if strings.Contains(w.headgate.Output()+report, "hgt_") {
				t.Error("the token is shown")
			}
		})
	}
}

// failsClosed reports whether a gateway that fails closed sends this status without a decision.
func (g gateway) failsClosed(status int) bool {
	for _, s := range g.statuses {
		if s == status {
			return true
		}
	}
	return false
}

// ready returns the body of /readyz.
func (w *world) ready() string {
	w.t.Helper()
	response, err := http.Get("http://" + w.addresses["127.0.0.1:8082"] + "/readyz")
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(body)
}
