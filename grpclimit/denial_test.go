package grpclimit_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
)

func TestDenial(t *testing.T) {
	t.Parallel()
	byUser := []string{"user"}
	tests := map[string]struct {
		rules []headgate.Rule
		calls int // only the last one is denied
		// Contents of the status that the client receives.
		message    string // without the wait
		rule       string
		wait       time.Duration
		violations []string
	}{
		"one limit": {
			rules: []headgate.Rule{{ID: "echo", By: byUser, Limit: headgate.PerMinute(2)}}, calls: 3,
			message: "rate limit exceeded: echo allows 2/minute", rule: "echo", wait: 30 * time.Second,
			violations: []string{"echo allows 2/minute"},
		},
		"several limits": {
			rules: []headgate.Rule{
				{ID: "short", By: byUser, Limit: headgate.PerMinute(1)},
				{ID: "long", By: byUser, Limits: map[string]headgate.Limit{
					"hour": headgate.PerHour(1), "day": headgate.PerDay(100),
				}},
			}, calls: 2,
			message: "rate limit exceeded: long#hour allows 1/hour", rule: "long", wait: time.Hour,
			violations: []string{"short allows 1/minute", "long#hour allows 1/hour"},
		},
		"hidden with the longest wait": {
			rules: []headgate.Rule{
				{ID: "shown", By: byUser, Limit: headgate.PerMinute(1)},
				{ID: "hidden", By: headgate.Global, Limit: headgate.PerHour(1)},
			}, calls: 2,
			message: "rate limit exceeded", rule: "(hidden)", wait: time.Hour,
			violations: []string{"shown allows 1/minute", "(hidden) is exceeded"},
		},
		"only hidden": {
			rules: []headgate.Rule{
				{ID: "hidden", By: byUser, Limit: headgate.PerHour(1), Expose: headgate.ExposeNever},
			}, calls: 2,
			message: "rate limit exceeded", rule: "(hidden)", wait: time.Hour,
			violations: []string{"(hidden) is exceeded"},
		},
		"with a shadow rule": {
			rules: []headgate.Rule{
				{ID: "echo", By: byUser, Limit: headgate.PerMinute(1)},
				{ID: "shadow", By: byUser, Limit: headgate.PerHour(1), Mode: headgate.Shadow, Expose: headgate.ExposeAlways},
			}, calls: 2,
			message: "rate limit exceeded: echo allows 1/minute", rule: "echo", wait: time.Minute,
			violations: []string{"echo allows 1/minute"},
		},
		"never": {
			rules: []headgate.Rule{{
				ID: "costly", By: byUser, Limit: headgate.PerMinute(2), Cost: headgate.Cost{From: "header.x-rows"},
			}}, calls: 1,
			message: "rate limit exceeded: costly allows 2/minute and can never allow a call of cost 5", rule: "costly",
			violations: []string{"costly allows 2/minute and can never allow a call of cost 5"},
		},
		"an attribute is missing": {
			rules: []headgate.Rule{
				{ID: "keys", By: []string{"api_key"}, OnMissing: headgate.DenyMissing, Limit: headgate.PerMinute(2)},
			}, calls: 1,
			message: "rate limit exceeded: keys denies calls without api_key", rule: "keys",
			violations: []string{"keys denies calls without api_key"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, limits(t, grpclimit.Options{}, test.rules...))
				ctx := as(t.Context(), "x-user-id", "ada", "x-rows", "5")
				for range test.calls - 1 {
					if err := c.echo(ctx, ""); err != nil {
						t.Fatal(err)
					}
				}
				err := c.echo(ctx, "")
				if status.Code(err) != codes.ResourceExhausted {
					t.Fatalf("the call ended with %v", err)
				}
				message, _, timed := strings.Cut(status.Convert(err).Message(), "; retry in ")
				if message != test.message || timed != (test.wait > 0) {
					t.Errorf("message %q", status.Convert(err).Message())
				}
				r := read(t, err)
				if r.info.GetReason() != "RATE_LIMIT_EXCEEDED" || r.info.GetDomain() != "headgate" ||
					r.info.GetMetadata()["rule"] != test.rule {
					t.Errorf("info %v", r.info)
				}
				if !slices.Equal(r.violations, test.violations) {
					t.Errorf("violations %q, want %q", r.violations, test.violations)
				}
				if r.retry < test.wait || r.retry > test.wait+test.wait/10 {
					t.Errorf("wait %s, want at least %s", r.retry, test.wait)
				}
				if test.wait > 0 {
					time.Sleep(r.retry)
					if err := c.echo(ctx, ""); err != nil {
						t.Errorf("after the wait: %v", err)
					}
				}
			})
		})
	}
}

// TestStoreFailure tests that a denial caused by an unavailable store has its own code, and that the failure is logged at most
// every 10 seconds.
func TestStoreFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		limiter, err := headgate.New(failing{},
			headgate.Rule{ID: "open", By: []string{"user"}, Limit: headgate.PerMinute(1)},
			headgate.Rule{
				ID: "closed", By: []string{"user"}, Limit: headgate.PerMinute(1),
				Match: headgate.Match{Attributes: map[string]headgate.Pattern{"user": headgate.OneOf("bob")}},

				OnStoreFailure: headgate.FailDeny,
			})
		if err != nil {
			t.Fatal(err)
		}
		o := grpclimit.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Metadata: true}
		c := serve(t, interceptors(t, limiter, o))
		for range 5 {
			if err := c.echo(as(t.Context(), "x-user-id", "ada"), ""); err != nil {
				t.Errorf("denied without on_store_failure deny: %v", err)
			}
		}
		var trailer metadata.MD
		err = c.echo(as(t.Context(), "x-user-id", "bob"), "", grpc.Trailer(&trailer))
		r := read(t, err)
		if status.Code(err) != codes.Unavailable || r.info.GetReason() != "RATE_LIMIT_UNAVAILABLE" ||
			r.info.GetMetadata()["rule"] != "closed" || r.retry != 0 || r.violations != nil {
			t.Errorf("%v, %+v", err, r)
		}
		if len(trailer.Get("grpc-retry-pushback-ms"))+len(trailer.Get("retry-after")) > 0 || !slices.Equal(trailer.Get("ratelimit"), []string{`"closed";r=0`}) {
			t.Errorf("trailer %v, want no wait", trailer)
		}
		if got := strings.Count(log.String(), "error=unavailable"); got != 1 {
			t.Errorf("%d lines in the log:\n%s", got, log.String())
		}
		time.Sleep(10 * time.Second)
		_ = c.echo(t.Context(), "")
		if got := strings.Count(log.String(), "error=unavailable"); got != 2 {
			t.Errorf("%d lines in the log after 10 s:\n%s", got, log.String())
		}
	})
}

// failingChecker allows every call and returns an error.
type failingChecker struct{}

func (failingChecker) Check(context.Context, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{Allowed: true}, errUnavailable
}

func (failingChecker) Attributes() []string { return nil }

func TestCheckErrorDoesNotFailCall(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := serve(t, interceptors(t, failingChecker{}, grpclimit.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}))
	for range 3 {
		if err := c.echo(t.Context(), ""); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(log.String(), "error=unavailable"); got != 1 {
		t.Errorf("%d lines in the log:\n%s", got, log.String())
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	rules := []headgate.Rule{
		{ID: "burst", By: []string{"user"}, Limit: headgate.Limit{Count: 60, Window: time.Minute, Burst: 2}},
		{ID: "more", By: []string{"user"}, Limits: map[string]headgate.Limit{
			"short": headgate.Per(50, 500*time.Millisecond),
			"month": headgate.Quota(1000, headgate.Month, nil),
		}},
		{ID: "all", By: headgate.Global, Limit: headgate.PerSecond(1000)},
	}
	synctest.Test(t, func(t *testing.T) { // the clock starts at midnight, January 1, 2000
		quiet := serve(t, limits(t, grpclimit.Options{}, rules...))
		loud := serve(t, limits(t, grpclimit.Options{Metadata: true}, rules...))
		ctx := as(t.Context(), "x-user-id", "ada")
		var header, trailer metadata.MD
		call := func(c *client) {
			header, trailer = nil, nil
			_ = c.echo(ctx, "", grpc.Header(&header), grpc.Trailer(&trailer))
		}
		expect := func(when string, got metadata.MD, name string, want ...string) {
			t.Helper()
			if !slices.Equal(got.Get(name), want) {
				t.Errorf("%s: %s is %q, want %q", when, name, got.Get(name), want)
			}
		}
		const policies = `"burst";q=60;w=60, "more#month";q=1000;w=2678400, "more#short";q=50`

		call(loud)
		expect("allowed", header, "ratelimit-policy", policies)
		expect("allowed", header, "ratelimit", `"burst";r=1;t=1, "more#month";r=999;t=2678400, "more#short";r=49;t=1`)
		call(loud)
		call(loud)
		expect("denied", trailer, "ratelimit-policy", policies)
		expect("denied", trailer, "ratelimit", `"burst";r=0;t=1, "more#month";r=998;t=2678400, "more#short";r=48;t=1`)
		expect("denied", trailer, "retry-after", "2") // one second plus jitter
		expect("denied", header, "ratelimit-policy")

		for range 3 {
			call(quiet)
			expect("by default", header, "ratelimit")
			expect("by default", trailer, "ratelimit")
			expect("by default", trailer, "retry-after")
		}
	})
}

// TestPushback tests that a gRPC client with a retry policy retries automatically, and not before the call can be allowed.
func TestPushback(t *testing.T) {
	t.Parallel()
	const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.001s",
		"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	for name, test := range map[string]struct {
		limit  headgate.Limit
		waits  time.Duration
		denied bool
	}{
		"soon":     {limit: headgate.PerMinute(10), waits: 6 * time.Second},
		"very":     {limit: headgate.PerSecond(1000), waits: time.Millisecond},
		"too late": {limit: headgate.PerHour(10), denied: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.limit.Burst = 1
			synctest.Test(t, func(t *testing.T) {
				denied := 0
				o := grpclimit.Options{Metadata: true, OnDenied: func(_ context.Context, method string, d *headgate.Decision) {
					if denied++; method != echo || d.DeniedBy().Rule != "echo" {
						t.Errorf("denied: %s by %v", method, d.DeniedBy())
					}
				}}
				rule := headgate.Rule{ID: "echo", By: []string{"user"}, Limit: test.limit}
				c := serve(t, limits(t, o, rule), grpc.WithDefaultServiceConfig(policy))
				if err := c.echo(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				err := c.echo(t.Context(), "")
				elapsed := time.Since(start)
				if (err != nil) != test.denied || denied != 1 {
					t.Errorf("%d denials, then %v", denied, err)
				}
				if elapsed < test.waits || elapsed > 2*test.waits+time.Millisecond {
					t.Errorf("elapsed %s, want %s", elapsed, test.waits)
				}
			})
		})
	}
}
