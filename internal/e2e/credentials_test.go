package e2e

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/adminapi"
)

// testCredentials has a gateway ask with its token, with another's and with none. One that is rejected is for its clients as if Headgate
// were away, and for operators impossible to miss.
func testCredentials(t *testing.T, binary string, g gateway) {
	right, line, err := adminapi.NewToken("gateway", "caller")
	if err != nil {
		t.Fatal(err)
	}
	wrong, _, err := adminapi.NewToken("stranger", "caller")
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
			for left := 9; left >= 0; left-- {
				c.passes("GET", "/", "pages-by-ip", 10, left)
			}
			c.denied(g, "GET", "/", "pages-by-ip", 10)
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
					t.Fatalf("a client of a gateway that fails open sees %d, %v, %q", got.status, got.header, got.body)
				}
			}
			closed := newClient(t, g.run(w, g.closed...), "127.0.0.2")
			before := w.app.reached()
			if got := closed.send("GET", "/", ""); !g.failsClosed(got.status) || got.counted() || w.app.reached() != before {
				t.Errorf("a client of a gateway that fails closed sees %d, %v, %q", got.status, got.header, got.body)
			}
			if n := strings.Count(w.headgate.Output(), "a caller is rejected"); n != 1 {
				t.Errorf("the log has it %d times, not once:\n%s", n, w.headgate.Output())
			}
			report, reason := w.ready(), rejected.reason
			if g.name == "envoy" && reason == "no_token" {
				reason = "token" // for a variable that is not set it sends something
			}
			if !strings.Contains(report, `"status":"degraded"`) || !strings.Contains(report, `"rejected":13`) || !strings.Contains(report, reason) {
				t.Errorf("readiness does not say so: %s", report)
			}
			if strings.Contains(w.headgate.Output()+report, "hgt_") {
				t.Error("the token is shown")
			}
		})
	}
}

// failsClosed reports whether clients get this status from a gateway that is closed while it has no answer.
func (g gateway) failsClosed(status int) bool {
	for _, s := range g.statuses {
		if s == status {
			return true
		}
	}
	return false
}

// ready is what /readyz says.
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
