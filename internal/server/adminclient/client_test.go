package adminclient_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
)

// client returns a client of a server with this handler.
func client(t *testing.T, h http.HandlerFunc) *adminclient.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := adminclient.New(adminclient.Options{Server: server.URL, Token: " hgt_x\n", Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Versions reads its list page by page, up to the limit.
func TestListReadsPages(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hgt_x" {
			t.Errorf("%v", r.Header)
		}
		next := map[string]string{"": "a", "a": "b"}[r.URL.Query().Get("cursor")]
		_, _ = io.WriteString(w, `{"versions": [{"version": 2}, {"version": 1}], "next": "`+next+`"}`)
	})
	for limit, want := range map[int]bool{1: true, 2: true, 5: true, 6: false, 100: false} {
		if all, more, err := c.Versions(t.Context(), limit); err != nil || more != want || len(all) != min(limit, 6) {
			t.Errorf("%d: %v, %v, %v", limit, all, more, err)
		}
	}
}

func TestRejectedCalls(t *testing.T) {
	t.Parallel()
	for want, response := range map[string]struct {
		status     int
		kind, body string
	}{
		"not headgate's admin API: write": {http.StatusOK, "text/html", "<html>"},
		"not headgate's admin API":        {http.StatusBadGateway, "text/html", "<html>"},
		"rule \"x\": not found: headgate": {http.StatusNotFound, "application/problem+json", `{"detail": "rule \"x\": not found"}`},
		"unknown token in HEADGATE_TOKEN": {http.StatusUnauthorized, "application/problem+json", `{"detail": "who?"}`},
		"two\n  a: b\n  c":                {http.StatusConflict, "application/problem+json", `{"detail": "two", "problems": [{"rule": "a", "problem": "b"}, {"problem": "c"}]}`},
	} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", response.kind)
			w.WriteHeader(response.status)
			_, _ = io.WriteString(w, response.body)
		})
		_, err := c.Nodes(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || adminclient.HasStatus(err, http.StatusConflict) != (response.status == http.StatusConflict) {
			t.Errorf("%q: %v", want, err)
		}
		var rejected *adminclient.StatusError
		if errors.As(err, &rejected) && rejected.Status != response.status {
			t.Errorf("%q: %d", want, rejected.Status)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]adminclient.Options{
		"invalid URL":                        {Server: "http://user@127.0.0.1"},
		"would send the token":               {Server: "http://gate.example:8083", Token: "hgt_x"},
		"HEADGATE_TOKEN: not a single token": {Server: "http://127.0.0.1:1", Token: "hgt_x hgt_y"}, //nolint:gosec // G101: not a secret
		"token is empty":                     {Server: "http://127.0.0.1:1", TokenFile: empty},
		"no PEM certificate found":           {Server: "https://127.0.0.1:1", CAFile: empty},
	} {
		if _, err := adminclient.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestUnknownOutcome checks which errors say that the server may have executed a call.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	for want, status := range map[string]int{
		"unknown: reset": 0, "unknown: 502": http.StatusBadGateway, "unknown: 503": http.StatusServiceUnavailable,
		"rejected: 409": http.StatusConflict, "rejected: 501": http.StatusNotImplemented, "rejected: 401": http.StatusUnauthorized,
	} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) {
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
		})
		_, err := c.ChangeWeights(t.Context(), &adminapi.WeightsChange{})
		if _, unknown := errors.AsType[*adminclient.UnknownOutcomeError](err); err == nil || unknown != strings.HasPrefix(want, "unknown") {
			t.Errorf("%s: %v", want, err)
		}
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	c, err := adminclient.New(adminclient.Options{Server: gone.URL, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ChangeWeights(t.Context(), &adminapi.WeightsChange{})
	if _, unknown := errors.AsType[*adminclient.UnknownOutcomeError](err); err == nil || unknown {
		t.Errorf("not sent: %v", err)
	}
}
