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

	"github.com/headgate/headgate/internal/server/adminclient"
)

// client asks a server with this handler.
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

// Lists are read page by page, as far as is wanted.
func TestPages(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hgt_x" {
			t.Errorf("%v", r.Header)
		}
		next := map[string]string{"": "a", "a": "b"}[r.URL.Query().Get("cursor")]
		_, _ = io.WriteString(w, `{"versions": [{"version": 2}, {"version": 1}], "next": "`+next+`"}`)
	})
	for most, want := range map[int]bool{1: true, 2: true, 5: true, 6: false, 100: false} {
		if all, more, err := c.Versions(t.Context(), most); err != nil || more != want || len(all) != min(most, 6) {
			t.Errorf("%d: %v, %v, %v", most, all, more, err)
		}
	}
}

func TestDenied(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]struct {
		status     int
		kind, body string
	}{
		"not as headgate's admin API":         {http.StatusOK, "text/html", "<html>"},
		"but not as headgate's":               {http.StatusBadGateway, "text/html", "<html>"},
		"rule \"x\": there is none: headgate": {http.StatusNotFound, "application/problem+json", `{"detail": "rule \"x\": there is none"}`},
		"does not know the token in HEADGATE": {http.StatusUnauthorized, "application/problem+json", `{"detail": "who?"}`},
		"two\n  a: b\n  c":                    {http.StatusConflict, "application/problem+json", `{"detail": "two", "problems": [{"rule": "a", "problem": "b"}, {"problem": "c"}]}`},
	} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", answer.kind)
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		})
		_, err := c.Nodes(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || adminclient.DeniedWith(err, http.StatusConflict) != (answer.status == http.StatusConflict) {
			t.Errorf("%q: %v", want, err)
		}
		var denied *adminclient.DenialError
		if errors.As(err, &denied) && denied.Status != answer.status {
			t.Errorf("%q: %d", want, denied.Status)
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
		"is no address of a server":     {Server: "http://user@127.0.0.1"},
		"would carry the token":         {Server: "http://gate.example:8083", Token: "hgt_x"},
		"HEADGATE_TOKEN has more in it": {Server: "http://127.0.0.1:1", Token: "hgt_x hgt_y"}, //nolint:gosec // G101: it is none
		"token is empty":                {Server: "http://127.0.0.1:1", TokenFile: empty},
		"has no certificate in PEM":     {Server: "https://127.0.0.1:1", CAFile: empty},
	} {
		if _, err := adminclient.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
