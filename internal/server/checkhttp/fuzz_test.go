package checkhttp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/check"
)

// FuzzHandler checks that no input causes a 5xx status or an invalid JSON body.
func FuzzHandler(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for part := range strings.SplitSeq(string(data), "\n===\n") {
			sent, _, _ := strings.Cut(part, "\n---\n")
			head, body, _ := strings.Cut(sent, "\n\n")
			line, _, _ := strings.Cut(head, "\n")
			method, path, _ := strings.Cut(line, " ")
			f.Add(method, path, "application/json", body, "/login", "POST", "/login")
		}
	}
	h := newTest(f, limiter(f), Options{MayRefund: check.AllRefund})
	f.Fuzz(func(t *testing.T, method, path, kind, body, uri, named, other string) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Method, r.URL.Path, r.RemoteAddr = method, path, "10.0.0.1:1"
		r.Header = http.Header{
			"Content-Type": {kind}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Method": {named}, "X-Forwarded-Host": {other},
		}
		if other != "" {
			r.Header["X-Original-Uri"] = []string{other}
		}
		w := serve(h, r)
		if w.Code >= 500 {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		if strings.HasSuffix(w.Header().Get("Content-Type"), "json") && w.Body.Len() > 0 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("not JSON: %s", w.Body)
		}
	})
}
