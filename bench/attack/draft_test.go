package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/retryafter"
)

// TestClientReadsAllDrafts: a client that waits as RateLimit says works with each version of the draft.
func TestClientReadsAllDrafts(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]httplimit.DraftVersion{"draft-11": httplimit.Draft11, "draft-next": httplimit.DraftNext} {
		limiter := newLimiter(t, memstore.New(memstore.Options{}), headgate.Rule{ID: "ip", By: []string{"ip"}, Limit: headgate.PerHour(1)})
		limit := httplimit.New(limiter, httplimit.Options{
			Headers: httplimit.Draft, DraftVersion: version, Log: quiet(),
			OnDenied: func(w http.ResponseWriter, _ *http.Request, _ headgate.Decision) {
				w.Header().Del("Retry-After")
				w.WriteHeader(http.StatusTooManyRequests)
			},
		})
		server := httptest.NewServer(limit(http.NotFoundHandler()))
		ctx, cancel := context.WithCancel(t.Context())
		var retry retryafter.Retry
		client := &http.Client{Transport: retryafter.New(nil, retryafter.Options{MaxWait: 2 * time.Hour, OnRetry: func(r retryafter.Retry) {
			retry = r
			cancel() // instead of waiting
		}})}
		for range 2 {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if response, err := client.Do(r); err == nil {
				_ = response.Body.Close()
			}
		}
		server.Close()
		t.Logf("%s: waits %s by %q", name, retry.Wait, retry.Header)
		if retry.Header != "RateLimit" || retry.Wait < time.Hour-time.Minute {
			t.Errorf("%s: the client waits %s by %q, want an hour by RateLimit", name, retry.Wait, retry.Header)
		}
	}
}

// TestDraftVersions checks the headers of servers with each version of the draft, and with the older draft in addition: those of
// forward-auth and those in the response of the check API.
func TestDraftVersions(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	for name, want := range map[string]struct{ policy, state, older, legacy string }{
		"":                        {`^"user";q=5;w=3600$`, `^"user";r=\d;t=\d+$`, `^$`, `^5$`},
		"both":                    {`^"user";q=5;w=3600$`, `^"user";r=\d;t=\d+$`, `^$`, `^5$`},
		"draft":                   {`^"user";q=5;w=3600$`, `^"user";r=\d;t=\d+$`, `^$`, `^$`},
		"draft-11":                {`^"user";q=5;w=3600$`, `^"user";r=\d;t=\d+$`, `^$`, `^$`},
		"draft-next":              {`^"user";q=5;w=3600$`, `^"user";a=\d;w=\d+$`, `^$`, `^$`},
		"[draft-next, legacy]":    {`^"user";q=5;w=3600$`, `^"user";a=\d;w=\d+$`, `^$`, `^5$`},
		"[both, older-draft]":     {`^"user";q=5;w=3600$`, `^"user";r=\d;t=\d+$`, `^5$`, `^5$`},
		"[legacy, older-draft]":   {`^$`, `^$`, `^5$`, `^5$`},
		"[draft-11, older-draft]": {`^"user";q=5;w=3600$`, `^"user";r=\d;t=\d+$`, `^5$`, `^$`},
		"\"off\"":                 {`^$`, `^$`, `^$`, `^$`},
	} {
		t.Run(name, func(t *testing.T) {
			config := fmt.Sprintf("redis: {address: %q}\n", "redis://"+redis.Addr())
			if name != "" {
				config += "headers: " + name + "\n"
			}
			node := startServer(t, config, "rules: [{id: user, by: [user], limit: 5/hour}]\n")
			judge := func(where string, get func(string) string) {
				for field, pattern := range map[string]string{
					"RateLimit-Policy": want.policy, "RateLimit": want.state, "RateLimit-Limit": want.older, "X-RateLimit-Limit": want.legacy,
				} {
					if !regexp.MustCompile(pattern).MatchString(get(field)) {
						t.Errorf("%s: %s is %q, want %s", where, field, get(field), pattern)
					}
				}
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+node.HTTP+"/v1/authorize", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-User-Id", "ada")
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			judge("forward-auth", response.Header.Get)
			body, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/peek", `{"attributes": {"user": "ada"}}`)
			if err != nil {
				t.Fatal(err)
			}
			var decision struct{ Headers map[string]string }
			if err := json.Unmarshal(body, &decision); err != nil {
				t.Fatal(err)
			}
			judge("JSON", func(name string) string { return decision.Headers[name] })
		})
	}
}
