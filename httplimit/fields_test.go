package httplimit_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// items returns the names of a structured field's members, and their parameters as numbers.
func items(t *testing.T, header http.Header, field string) (names []string, params []map[string]int64) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(header.Values(field))
	if err != nil {
		t.Fatalf("%s: %v in %q", field, err, header.Values(field))
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			t.Fatalf("%s: %v is not an item", field, member)
		}
		name, ok := item.Value.(string)
		if !ok {
			t.Fatalf("%s: %v is not a string", field, item.Value)
		}
		values := map[string]int64{}
		for _, key := range item.Params.Names() {
			value, _ := item.Params.Get(key)
			if values[key], ok = value.(int64); !ok {
				t.Fatalf("%s: %s=%v is not an integer", field, key, value)
			}
		}
		names, params = append(names, name), append(params, values)
	}
	return names, params
}

// TestStructuredFields parses the headers with a third-party parser, including names that a Limiter does not allow.
func TestStructuredFields(t *testing.T) {
	t.Parallel()
	var d headgate.Decision
	d.Allowed = true
	written := []string{"plain", `a"b`, `a\b`, "line\nbreak", "ümlaut", "tab\t", "\x7f", "", `";r=99, "x`}
	want := []string{"plain#n", `a"b#n`, `a\b#n`, "line?break#n", "??mlaut#n", "tab?#n", "?#n", "#n", `";r=99, "x#n`}
	for i, name := range written {
		d.Limits = append(d.Limits, headgate.LimitDecision{
			Rule: name, Name: "n", Limit: headgate.PerMinute(headgate.MaxCost), Exposed: true,
			Result: headgate.Result{Allowed: true, Remaining: int64(i), ResetAfter: time.Hour, Time: noon},
		})
	}
	w := serve(httplimit.New(static{decision: d}, httplimit.Options{})(hello), get("/"))

	policies, quotas := items(t, w.Header(), "RateLimit-Policy")
	states, left := items(t, w.Header(), "RateLimit")
	if strings.Join(policies, "|") != strings.Join(want, "|") || strings.Join(states, "|") != strings.Join(want, "|") {
		t.Errorf("policies %q and states %q, want %q", policies, states, want)
	}
	for i := range quotas {
		if q := quotas[i]; len(q) != 2 || q["q"] != headgate.MaxCost || q["w"] != 60 {
			t.Errorf("%s: parameters %v", policies[i], q)
		}
		if r := left[i]; len(r) != 2 || r["r"] != int64(i) || r["t"] != 3600 {
			t.Errorf("%s: parameters %v", states[i], r)
		}
	}
}

// TestNotDecided tests the response for a limit that the store did not decide: it has a policy but no state.
func TestNotDecided(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		rules []headgate.Rule
		want  string
	}{
		{
			name:  "allow",
			rules: []headgate.Rule{{ID: "a", By: []string{"ip"}, Limit: headgate.PerMinute(1)}},
			want: `200
				RateLimit-Policy: "a";q=1;w=60
				hello`,
		},
		{
			name: "deny",
			rules: []headgate.Rule{
				{ID: "a", By: []string{"ip"}, Limit: headgate.PerMinute(1)},
				{ID: "b", By: []string{"ip"}, Limit: headgate.Quota(1, headgate.Month, nil), OnStoreFailure: headgate.FailDeny},
			},
			want: `503
				RateLimit-Policy: "a";q=1;w=60, "b";q=1
				RateLimit: "b";r=0
				X-RateLimit-Limit: 1
				X-RateLimit-Remaining: 0
				Retry-After: 1
				Content-Type: application/problem+json
				{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
				`"title":"Temporarily reduced capacity","status":503,"violated-policies":["b"],"error":"rate_limit_unavailable",` +
				`"message":"rate limit unavailable: b cannot be checked at the moment; retry in 1 second","rule":"b","retry_after":1}`,
		},
		{
			name: "deny, hidden",
			rules: []headgate.Rule{
				{ID: "b", By: headgate.Global, Limit: headgate.PerMinute(1), OnStoreFailure: headgate.FailDeny},
			},
			want: `503
				RateLimit-Policy: "(hidden)";q=1;w=60
				RateLimit: "(hidden)";r=0
				X-RateLimit-Limit: 1
				X-RateLimit-Remaining: 0
				Retry-After: 1
				Content-Type: application/problem+json
				{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
				`"title":"Temporarily reduced capacity","status":503,"violated-policies":["(hidden)"],"error":"rate_limit_unavailable",` +
				`"message":"rate limit unavailable; retry in 1 second","rule":"(hidden)","retry_after":1}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			limiter, err := headgate.New(unavailable{}, test.rules...)
			if err != nil {
				t.Fatal(err)
			}
			h := httplimit.NewWithRandom(limiter, httplimit.Options{Log: quiet()}, exact)(hello)
			compare(t, serve(h, get("/")), test.want)
		})
	}
}

// TestDeniedWithUndecidedLimit tests that a denial is a 429 even if another limit was not decided.
func TestDeniedWithUndecidedLimit(t *testing.T) {
	t.Parallel()
	d := headgate.Decision{RetryAfter: time.Minute, Path: headgate.PathFailed, Limits: []headgate.LimitDecision{
		{Rule: "a", Enforced: true, Result: headgate.Result{Err: errUnavailable}},
		{Rule: "b", Enforced: true, Result: headgate.Result{RetryAfter: time.Minute, Time: noon}},
	}}
	for range 2 {
		h := httplimit.New(static{decision: d}, httplimit.Options{Log: quiet()})(hello)
		if w := serve(h, get("/")); w.Code != http.StatusTooManyRequests {
			t.Errorf("status %d", w.Code)
		}
		d.Limits[0], d.Limits[1] = d.Limits[1], d.Limits[0]
	}
}

// TestHandlerChangesHeaders tests that a handler can replace, remove and add headers without changing the others.
func TestHandlerChangesHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "a", By: []string{"ip"}, Limit: headgate.PerMinute(2)})
	h := httplimit.New(w.limiter, httplimit.Options{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "7")
		w.Header().Add("RateLimit-Policy", `"mine";q=1`)
		w.Header().Del("X-RateLimit-Reset")
		w.WriteHeader(http.StatusNoContent)
	}))
	compare(t, serve(h, get("/")), `204
		RateLimit-Policy: "a";q=2;w=60
		RateLimit-Policy: "mine";q=1
		RateLimit: "a";r=1;t=30
		X-RateLimit-Limit: 7
		X-RateLimit-Remaining: 1`)
}
