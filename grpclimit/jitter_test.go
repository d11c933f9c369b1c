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

// Chance only adds to a wait, and not much.
func TestJitter(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		wait := time.Duration(1 + random.Int64N(1<<(1+random.IntN(60))))
		got := jitter(wait)
		most := wait / 10
		if wait < time.Second {
			most = min(wait, 100*time.Millisecond)
		}
		if got < wait || got > wait+min(most, 5*time.Minute) {
			t.Fatalf("a wait of %s became %s", wait, got)
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
		t.Errorf("100 clients come back at %d times", len(seen))
	}
}

// However many limits deny, the answer fits into what clients and proxies have for headers.
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
				t.Errorf("%s is the worst", rule)
			}
		case *errdetails.QuotaFailure:
			named = len(detail.GetViolations())
		}
	}
	if named != maxNamed {
		t.Errorf("%d are named", named)
	}
	if md := rateLimits(&d); len(md["ratelimit"][0])+len(md["ratelimit-policy"][0]) > 1000 {
		t.Errorf("metadata %v", md)
	}
}
