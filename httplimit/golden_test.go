package httplimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
)

// tierOf returns an Identity that reads the tier and the key from headers.
func tierOf(t *testing.T) httplimit.Identity {
	t.Helper()
	resolver, err := identity.New(identity.Options{
		TrustedHops: 1, Tier: []string{"header.x-tier"}, APIKey: identity.APIKey{Header: "X-API-Key"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return resolver
}

// TestResponses sends a request several times and compares the last response.
func TestResponses(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	byIP := []string{"ip"}
	search := headgate.Rule{
		ID: "search-by-key", By: []string{"api_key"}, Limit: headgate.Limit{Count: 1000, Window: time.Minute, Burst: 200},
		Tiers: map[string]headgate.Plan{"free": {Limit: headgate.PerMinute(1)}},
	}
	exports := headgate.Rule{ID: "exports", By: byIP, Limits: map[string]headgate.Limit{
		"peak": headgate.PerSecond(2), "month": headgate.Quota(3, headgate.Month, berlin),
	}}
	hidden := headgate.Rule{ID: "secret", By: byIP, Limit: headgate.PerMinute(1), Expose: headgate.ExposeNever}

	for _, test := range []struct {
		name  string
		rules []headgate.Rule
		setup func(*headgate.Limiter) error
		times int
		send  *http.Request
		want  string
	}{
		{
			name: "no rule", times: 1, send: get("/"),
			rules: []headgate.Rule{{ID: "a", Match: headgate.Match{Path: "/a"}, By: byIP, Limit: headgate.PerMinute(1)}},
			want: `200
				hello`,
		},
		{
			name: "a bucket with a burst", rules: []headgate.Rule{search}, times: 13, send: get("/", "X-API-Key", "k"),
			want: `200
				RateLimit-Policy: "search-by-key";q=1000;w=60
				RateLimit: "search-by-key";r=187;t=1
				X-RateLimit-Limit: 200
				X-RateLimit-Remaining: 187
				X-RateLimit-Reset: 1794744002
				hello`,
		},
		{
			name: "a tier", rules: []headgate.Rule{search}, times: 2, send: get("/", "X-API-Key", "k", "X-Tier", "free"),
			want: `429
				RateLimit-Policy: "search-by-key";q=1;w=60
				RateLimit: "search-by-key";r=0;t=60
				X-RateLimit-Limit: 1
				X-RateLimit-Remaining: 0
				X-RateLimit-Reset: 1794744061
				Retry-After: 60
				Content-Type: application/problem+json
				{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
				`"violated-policies":["search-by-key"],"error":"rate_limit_exceeded",` +
				`"message":"rate limit exceeded: search-by-key allows 1/minute; retry in 60 seconds","rule":"search-by-key","retry_after":60}`,
		},
		{
			name: "an override", rules: []headgate.Rule{search}, times: 1, send: get("/", "X-API-Key", "k", "X-Tier", "free"),
			setup: func(l *headgate.Limiter) error {
				return l.Exceptions().Set(headgate.Override{
					Rule: "search-by-key", Subject: headgate.Attributes{"api_key": headgate.HashKey("k")},
					Limit: headgate.Per(10, 10*time.Second),
				})
			},
			want: `200
				RateLimit-Policy: "search-by-key";q=10;w=10
				RateLimit: "search-by-key";r=9;t=1
				X-RateLimit-Limit: 10
				X-RateLimit-Remaining: 9
				X-RateLimit-Reset: 1794744002
				hello`,
		},
		{
			name: "smallest fraction remaining, a calendar month", rules: []headgate.Rule{exports}, times: 1, send: get("/"),
			want: `200
				RateLimit-Policy: "exports#month";q=3;w=2592000, "exports#peak";q=2;w=1
				RateLimit: "exports#month";r=2;t=1335600, "exports#peak";r=1;t=1
				X-RateLimit-Limit: 2
				X-RateLimit-Remaining: 1
				X-RateLimit-Reset: 1794744001
				hello`,
		},
		{
			name: "a leaky bucket in front", times: 1, send: get("/"),
			rules: []headgate.Rule{{
				ID: "even", By: byIP, MaxDelay: 10 * time.Second,
				Limit: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 2, Window: time.Second},
			}},
			want: `200
				RateLimit-Policy: "even";q=2;w=1
				RateLimit: "even";r=2;t=1
				X-RateLimit-Limit: 2
				X-RateLimit-Remaining: 2
				X-RateLimit-Reset: 1794744001
				hello`,
		},
		{
			name: "the denying limit with the longest wait", times: 3, send: get("/"),
			rules: []headgate.Rule{
				{ID: "short", By: byIP, Limit: headgate.Per(2, 20*time.Second)},
				{ID: "long", By: byIP, Limits: map[string]headgate.Limit{
					"hour": headgate.PerHour(2), "day": headgate.PerDay(5000),
				}},
				hidden2(hidden),
			},
			want: `429
				RateLimit-Policy: "short";q=2;w=20, "long#day";q=5000;w=86400, "long#hour";q=2;w=3600, "(hidden)";q=2;w=60
				RateLimit: "short";r=0;t=10, "long#day";r=4998;t=35, "long#hour";r=0;t=1800, "(hidden)";r=0;t=30
				X-RateLimit-Limit: 2
				X-RateLimit-Remaining: 0
				X-RateLimit-Reset: 1794747601
				Retry-After: 1800
				Content-Type: application/problem+json
				{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
				`"violated-policies":["short","long#hour","(hidden)"],"error":"rate_limit_exceeded",` +
				`"message":"rate limit exceeded: long#hour allows 2/hour; retry in 1800 seconds","rule":"long","retry_after":1800}`,
		},
		{
			name: "a hidden rule denies", rules: []headgate.Rule{hidden, search}, times: 2, send: get("/", "X-API-Key", "k"),
			want: `429
				RateLimit-Policy: "(hidden)";q=1;w=60, "search-by-key";q=1000;w=60
				RateLimit: "(hidden)";r=0;t=60, "search-by-key";r=199;t=1
				X-RateLimit-Limit: 1
				X-RateLimit-Remaining: 0
				X-RateLimit-Reset: 1794744061
				Retry-After: 60
				Content-Type: application/problem+json
				{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
				`"violated-policies":["(hidden)"],"error":"rate_limit_exceeded",` +
				`"message":"rate limit exceeded; retry in 60 seconds","rule":"(hidden)","retry_after":60}`,
		},
		{
			name: "shadow, candidate and global rules are not shown", times: 3, send: get("/"),
			rules: []headgate.Rule{
				{ID: "shadow", By: byIP, Limit: headgate.PerMinute(1), Mode: headgate.Shadow},
				{ID: "all", By: headgate.Global, Limit: headgate.PerMinute(10)},
				{ID: "trial", By: byIP, Limit: headgate.PerMinute(60), Candidate: headgate.Plan{Limit: headgate.PerMinute(1)}},
			},
			want: `200
				RateLimit-Policy: "trial";q=60;w=60
				RateLimit: "trial";r=57;t=3
				X-RateLimit-Limit: 60
				X-RateLimit-Remaining: 57
				X-RateLimit-Reset: 1794744004
				hello`,
		},
		{
			name: "shadow and global rules, exposed", times: 3, send: get("/"),
			rules: []headgate.Rule{
				{ID: "shadow", By: byIP, Limit: headgate.PerMinute(1), Mode: headgate.Shadow, Expose: headgate.ExposeAlways},
				{ID: "all", By: headgate.Global, Limit: headgate.PerMinute(10), Expose: headgate.ExposeAlways},
			},
			want: `200
				RateLimit-Policy: "shadow";q=1;w=60, "all";q=10;w=60
				RateLimit: "shadow";r=0;t=60, "all";r=7;t=18
				X-RateLimit-Limit: 1
				X-RateLimit-Remaining: 0
				X-RateLimit-Reset: 1794744061
				hello`,
		},
		{
			name: "never", times: 1, send: get("/", "X-Rows", "50"),
			rules: []headgate.Rule{{
				ID: "rows", By: byIP, Limit: headgate.PerMinute(10), Cost: headgate.Cost{From: "header.x-rows"},
			}},
			want: `429
				RateLimit-Policy: "rows";q=10;w=60
				RateLimit: "rows";r=0
				X-RateLimit-Limit: 10
				X-RateLimit-Remaining: 0
				X-RateLimit-Reset: 1794744001
				Content-Type: application/problem+json
				{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
				`"violated-policies":["rows"],"error":"rate_limit_exceeded",` +
				`"message":"rate limit exceeded: rows allows 10/minute and can never allow a request of cost 50","rule":"rows","retry_after":null}`,
		},
		{
			name: "a missing attribute", times: 1, send: get("/"),
			rules: []headgate.Rule{{
				ID: "keys", By: []string{"api_key"}, OnMissing: headgate.DenyMissing, Limit: headgate.PerMinute(10),
			}},
			want: `429
				RateLimit-Policy: "keys";q=10;w=60
				RateLimit: "keys";r=0
				X-RateLimit-Limit: 10
				X-RateLimit-Remaining: 0
				Content-Type: application/problem+json
				{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
				`"violated-policies":["keys"],"error":"rate_limit_exceeded",` +
				`"message":"rate limit exceeded: keys denies requests without api_key","rule":"keys","retry_after":null}`,
		},
		{
			name: "windows that are not whole seconds", times: 1, send: get("/"),
			rules: []headgate.Rule{{ID: "quick", By: byIP, Limits: map[string]headgate.Limit{
				"a": headgate.Per(5, 100*time.Millisecond), "b": headgate.Per(5, 1500*time.Millisecond),
			}}},
			want: `200
				RateLimit-Policy: "quick#a";q=5, "quick#b";q=5
				RateLimit: "quick#a";r=4;t=1, "quick#b";r=4;t=1
				X-RateLimit-Limit: 5
				X-RateLimit-Remaining: 4
				X-RateLimit-Reset: 1794744001
				hello`,
		},
		{
			name: "one second", times: 2, send: get("/"),
			rules: []headgate.Rule{{ID: "one", By: byIP, Limit: headgate.PerSecond(1)}},
			want: `429
				RateLimit-Policy: "one";q=1;w=1
				RateLimit: "one";r=0;t=1
				X-RateLimit-Limit: 1
				X-RateLimit-Remaining: 0
				X-RateLimit-Reset: 1794744002
				Retry-After: 1
				Content-Type: application/problem+json
				{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
				`"violated-policies":["one"],"error":"rate_limit_exceeded",` +
				`"message":"rate limit exceeded: one allows 1/second; retry in 1 second","rule":"one","retry_after":1}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.rules...)
			if test.setup != nil {
				if err := test.setup(w.limiter); err != nil {
					t.Fatal(err)
				}
			}
			h := limits(w, httplimit.Options{Identity: tierOf(t), Log: quiet()})
			for range test.times - 1 {
				serve(h, test.send)
			}
			compare(t, serve(h, test.send), test.want)
		})
	}
}

// hidden2 returns the rule with a limit of two requests.
func hidden2(r headgate.Rule) headgate.Rule {
	r.Limit = headgate.PerMinute(2)
	return r
}

// TestHead tests that a denied HEAD request gets the headers of a denied GET and no body.
func TestHead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "one", By: []string{"ip"}, Limit: headgate.PerMinute(1)})
	h := limits(w, httplimit.Options{})
	r := get("/")
	r.Method = http.MethodHead
	serve(h, r)
	compare(t, serve(h, r), `429
		RateLimit-Policy: "one";q=1;w=60
		RateLimit: "one";r=0;t=60
		X-RateLimit-Limit: 1
		X-RateLimit-Remaining: 0
		X-RateLimit-Reset: 1794744061
		Retry-After: 60
		Content-Type: application/problem+json`)
}

func TestHeaderProfiles(t *testing.T) {
	t.Parallel()
	const (
		draft = `RateLimit-Policy: "two";q=2;w=60
			RateLimit: "two";r=0;t=30
			`
		legacy = `X-RateLimit-Limit: 2
			X-RateLimit-Remaining: 0
			X-RateLimit-Reset: 1794744061
			`
		older = `RateLimit-Limit: 2
			RateLimit-Remaining: 0
			RateLimit-Reset: 30
			`
	)
	for _, test := range []struct {
		name string
		o    httplimit.Options
		want string
	}{
		{"both", httplimit.Options{}, draft + legacy},
		{"draft", httplimit.Options{Headers: httplimit.Draft}, draft},
		{"legacy", httplimit.Options{Headers: httplimit.Legacy}, legacy},
		{"off", httplimit.Options{Headers: httplimit.Off}, ""},
		{"both, older", httplimit.Options{OlderDraft: true}, draft + legacy + older},
		{"draft, older", httplimit.Options{Headers: httplimit.Draft, OlderDraft: true}, draft + older},
		{"legacy, older", httplimit.Options{Headers: httplimit.Legacy, OlderDraft: true}, legacy + older},
		{"off, older", httplimit.Options{Headers: httplimit.Off, OlderDraft: true}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.o.OnDenied = func(w http.ResponseWriter, _ *http.Request, d headgate.Decision) {
				http.Error(w, d.DeniedBy().Rule, http.StatusTeapot)
			}
			h := limits(newWorld(t, headgate.Rule{ID: "two", By: []string{"ip"}, Limit: headgate.PerMinute(2)}), test.o)
			serve(h, get("/"))
			serve(h, get("/"))
			compare(t, serve(h, get("/")), "418\n"+test.want+`Retry-After: 30
				Content-Type: text/plain; charset=utf-8
				two`)
		})
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "one", By: []string{"ip"}, Limit: headgate.PerMinute(1)})
	h := limits(w, httplimit.Options{Status: http.StatusServiceUnavailable, Headers: httplimit.Off})
	serve(h, get("/"))
	compare(t, serve(h, get("/")), `503
		Retry-After: 60
		Content-Type: application/problem+json
		{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":503,`+
		`"violated-policies":["one"],"error":"rate_limit_exceeded",`+
		`"message":"rate limit exceeded: one allows 1/minute; retry in 60 seconds","rule":"one","retry_after":60}`)
}
