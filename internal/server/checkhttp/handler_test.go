package checkhttp

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/server/check"
)

func post(path, body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
}

// TestDefaults checks that a handler without options works, and trusts no proxy.
func TestDefaults(t *testing.T) {
	t.Parallel()
	h := New(limiter(t), Options{Log: quiet()})
	if w := serve(h, forwardAuth("X-Forwarded-Uri", "/keys", "X-Forwarded-Method", "GET")); w.Code != http.StatusOK {
		t.Errorf("status %d: an untrusted proxy was trusted", w.Code)
	}
}

// TestHeaderProfiles checks which headers are returned for the client.
func TestHeaderProfiles(t *testing.T) {
	t.Parallel()
	for headers, want := range map[limitfields.Choice]string{
		{Draft: true, Legacy: true}: "RateLimit-Policy RateLimit X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset Retry-After",
		{Draft: true}:               "RateLimit-Policy RateLimit Retry-After",
		{Legacy: true}:              "X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset Retry-After",
		{}:                          "Retry-After",
	} {
		h := newTest(t, limiter(t), Options{})
		h.headers.Choice = headers
		const body = `{"attributes": {"user": "ada", "path": "/chat"}, "cost": 600}`
		serve(h, post("/v1/check", body))
		var got struct{ Headers map[string]string }
		if err := json.Unmarshal(serve(h, post("/v1/check", body)).Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		names := strings.Fields(want)
		for _, name := range names {
			if got.Headers[name] == "" {
				t.Errorf("%v: missing %s", headers, name)
			}
		}
		if len(got.Headers) != len(names) {
			t.Errorf("%v: headers %v, want %v", headers, got.Headers, names)
		}
	}
}

// TestSameHeaders checks that the returned headers are those that package httplimit sets.
func TestSameHeaders(t *testing.T) {
	t.Parallel()
	var got struct{ Headers map[string]string }
	w := serve(newTest(t, limiter(t), Options{}),
		post("/v1/check", `{"attributes": {"ip": "192.0.2.1", "path": "/exports"}}`))
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	w = serve(newTest(t, limiter(t), Options{}),
		forwardAuth("X-Forwarded-Uri", "/exports", "X-Forwarded-Method", "GET", "X-Forwarded-For", "192.0.2.1"))
	if len(got.Headers) != 5 {
		t.Errorf("headers %v", got.Headers)
	}
	for name, value := range got.Headers {
		if w.Header().Get(name) != value {
			t.Errorf("%s is %q, and %q with forward-auth", name, value, w.Header().Get(name))
		}
	}
}

// TestUTF8 checks that different invalid values are not decoded to the same value.
func TestUTF8(t *testing.T) {
	t.Parallel()
	w := serve(newTest(t, limiter(t), Options{}), post("/v1/check", "{\"attributes\": {\"user\": \"\xff\"}}"))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "not UTF-8") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// TestLargeBatch checks a batch of the maximum size on one limit.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	h := newTest(t, limiter(t), Options{})
	batch := func(n int) string {
		one := `{"attributes":{"ip":"192.0.2.1"},"rule":"login-by-ip"}`
		return `{"requests":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]}"
	}
	var got struct{ Responses []struct{ Allowed bool } }
	if err := json.Unmarshal(serve(h, post("/v1/check/batch", batch(check.MaxBatch))).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	allowed := 0
	for _, r := range got.Responses {
		if r.Allowed {
			allowed++
		}
	}
	if len(got.Responses) != check.MaxBatch || allowed != 10 {
		t.Errorf("%d of %d are allowed, want 10 of %d", allowed, len(got.Responses), check.MaxBatch)
	}
	w := serve(h, post("/v1/check/batch", batch(check.MaxBatch+1)))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "send at most 1000") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// TestBrokenEngineLog checks that failures of the engine are logged, and do not flood the log.
func TestBrokenEngineLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := newTest(t, brokenEngine{limiter(t)}, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		serve(h, post("/v1/check", "{}"))
	}
	if n := strings.Count(log.String(), errBroken.Error()); n != 1 {
		t.Errorf("the error: %d times in the log:\n%s", n, log.String())
	}
}
