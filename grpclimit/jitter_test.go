package grpclimit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

// TestJitter tests that jitter only lengthens a wait, within its bounds.
func TestJitter(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		wait := time.Duration(1 + random.Int64N(1<<(1+random.IntN(60))))
		got := jitter(wait)
		maxJitter := wait / 10
		if wait < time.Second {
			maxJitter = min(wait, 100*time.Millisecond)
		}
		if got < wait || got > wait+min(maxJitter, 5*time.Minute) {
			t.Fatalf("jitter(%s) = %s", wait, got)
		}
		if ms := time.Duration(limitfields.RoundUp(got, time.Millisecond)) * time.Millisecond; ms < got || ms >= got+time.Millisecond {
			t.Fatalf("%s is %s in milliseconds", got, ms)
		}
	}
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[jitter(time.Second)] = true
	}
	if len(seen) < 90 {
		t.Errorf("100 clients got only %d different waits", len(seen))
	}
}

// TestManyLimits tests that the response fits into the header limits of clients and proxies, however many limits deny the call.
func TestManyLimits(t *testing.T) {
	t.Parallel()
	var d headgate.Decision
	for n := range 100 {
		d.Limits = append(d.Limits, headgate.LimitDecision{
			Rule: fmt.Sprintf("rule-%d", n), Limit: headgate.PerMinute(1), Enforced: true, Exposed: true,
			Result: headgate.Result{RetryAfter: time.Duration(n+1) * time.Second},
		})
	}
	named := 0
	for _, detail := range statusOf(&d, 0).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if rule := detail.GetMetadata()["rule"]; rule != "rule-99" {
				t.Errorf("rule %s in ErrorInfo, want rule-99", rule)
			}
		case *errdetails.QuotaFailure:
			named = len(detail.GetViolations())
		}
	}
	if named != maxNamed {
		t.Errorf("%d limits are named", named)
	}
	if md := rateLimits(&d); len(md["ratelimit"][0])+len(md["ratelimit-policy"][0]) > 1000 {
		t.Errorf("metadata %v", md)
	}
}
