package checkgrpc_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// respond returns the message of a decision.
func respond(t *testing.T, d headgate.Decision) *checkv1.CheckResponse {
	t.Helper()
	service := checkgrpc.New(&scripted{Limiter: limiter(t), decision: d}, checkgrpc.Options{})
	response, err := service.Check(t.Context(), &checkv1.CheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func TestResponse(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(1_800_000_000_000_001)
	for name, test := range map[string]struct {
		decision headgate.Decision
		want     *checkv1.CheckResponse
	}{
		"no limit applied": {
			headgate.Decision{Allowed: true, Path: headgate.PathNone, Version: "v"},
			&checkv1.CheckResponse{Allowed: true, Path: "none", Version: "v", Remaining: -1},
		},
		"two limits": {
			headgate.Decision{
				Allowed: true, Delay: 30 * time.Millisecond, Path: headgate.PathStore, Version: "v", Time: now,
				Limits: []headgate.LimitDecision{
					{
						Rule: "a", Name: "peak", Limit: headgate.Limit{Count: 10, Window: time.Second, Burst: 5}, Cost: 2,
						Enforced: true, Exposed: true, Result: headgate.Result{
							Allowed: true, Granted: 2, Remaining: 3, ResetAfter: 200 * time.Millisecond, Time: now,
						},
					},
					{
						Rule: "b", Limit: headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Minute}, Cost: 1,
						Origin: headgate.FromTier,
						Result: headgate.Result{RetryAfter: time.Second, Delay: 30 * time.Millisecond, Time: now},
					},
				},
			},
			&checkv1.CheckResponse{
				Allowed: true, DelayUs: 30_000, Path: "store", Version: "v", TimeUs: 1_800_000_000_000_001,
				Remaining: 3, ResetUs: 1_800_000_000_200_001,
				Limits: []*checkv1.LimitStatus{
					{
						Rule: "a", Name: "peak", Origin: checkv1.Origin_ORIGIN_RULE, Enforced: true, Exposed: true,
						Algorithm: checkv1.Algorithm_ALGORITHM_TOKEN_BUCKET, Count: 10, WindowUs: 1_000_000, Burst: 5,
						Allowed: true, Cost: 2, Granted: 2, Remaining: 3, ResetAfterUs: 200_000,
					},
					{
						Rule: "b", Algorithm: checkv1.Algorithm_ALGORITHM_LEAKY_BUCKET, Count: 1, WindowUs: 60_000_000, Cost: 1,
						Origin: checkv1.Origin_ORIGIN_TIER, RetryAfterUs: 1_000_000, DelayUs: 30_000,
					},
				},
			},
		},
		"never": {
			headgate.Decision{RetryAfter: headgate.Never, Path: headgate.PathRules, Limits: []headgate.LimitDecision{{
				Rule: "a", Missing: "user", Enforced: true, Result: headgate.Result{RetryAfter: headgate.Never},
			}}},
			&checkv1.CheckResponse{RetryAfterUs: -1, Path: "rules", Limits: []*checkv1.LimitStatus{{
				Rule: "a", Missing: "user", Enforced: true, RetryAfterUs: -1, Algorithm: checkv1.Algorithm_ALGORITHM_TOKEN_BUCKET,
				Origin: checkv1.Origin_ORIGIN_RULE,
			}}},
		},
		"the store failed": {
			headgate.Decision{Allowed: true, Path: headgate.PathFailed, Limits: []headgate.LimitDecision{{
				Rule: "a", Result: headgate.Result{Allowed: true, Err: headgate.ErrUnavailable},
			}}},
			&checkv1.CheckResponse{Allowed: true, Path: "failed", Remaining: -1, Limits: []*checkv1.LimitStatus{{
				Rule: "a", Allowed: true, Failed: true, Algorithm: checkv1.Algorithm_ALGORITHM_TOKEN_BUCKET,
				Origin: checkv1.Origin_ORIGIN_RULE,
			}}},
		},
	} {
		if got := respond(t, test.decision); !proto.Equal(got, test.want) {
			t.Errorf("%s:\ngot  %v\nwant %v", name, got, test.want)
		}
	}
}

// TestCalendarWindow checks that a calendar window has the length of the current one.
func TestCalendarWindow(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for _, test := range []struct {
		time time.Time
		want time.Duration
	}{
		{time.Date(2027, 2, 10, 0, 0, 0, 0, time.UTC), 28 * day},
		{time.Date(2027, 3, 10, 0, 0, 0, 0, time.UTC), 31*day - time.Hour}, // clocks go forward
		{time.Time{}, 0},
	} {
		got := respond(t, headgate.Decision{Limits: []headgate.LimitDecision{{
			Rule: "a", Limit: headgate.Quota(10, headgate.Month, berlin), Result: headgate.Result{Time: test.time},
		}}}).GetLimits()[0].GetWindowUs()
		if got != test.want.Microseconds() {
			t.Errorf("at %v: %v, want %v", test.time, time.Duration(got)*time.Microsecond, test.want)
		}
	}
}

// TestNames checks that the enums match the names in rules.
func TestNames(t *testing.T) {
	t.Parallel()
	for n := range len(checkv1.Algorithm_name) - 1 {
		a := headgate.Algorithm(n)
		got := respond(t, headgate.Decision{Limits: []headgate.LimitDecision{{Limit: headgate.Limit{Algorithm: a}}}})
		if name := got.GetLimits()[0].GetAlgorithm().String(); name != "ALGORITHM_"+strings.ToUpper(a.String()) {
			t.Errorf("%v is %s", a, name)
		}
	}
	for n := range len(checkv1.Origin_name) - 1 {
		o := headgate.Origin(n)
		got := respond(t, headgate.Decision{Limits: []headgate.LimitDecision{{Origin: o}}})
		if name := got.GetLimits()[0].GetOrigin().String(); name != "ORIGIN_"+strings.ToUpper(o.String()) {
			t.Errorf("%v is %s", o, name)
		}
	}
	for _, other := range []string{
		headgate.Algorithm(len(checkv1.Algorithm_name) - 1).String(), headgate.Origin(len(checkv1.Origin_name) - 1).String(),
	} {
		if other != "unknown" && !strings.HasPrefix(other, "algorithm(") {
			t.Errorf("check.proto lacks %s", other)
		}
	}
}
