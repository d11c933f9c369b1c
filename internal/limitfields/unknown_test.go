package limitfields

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelimitdraft"
)

func TestLonger(t *testing.T) {
	t.Parallel()
	order := []time.Duration{0, headgate.Unknown, time.Microsecond, time.Hour, headgate.Never}
	for i, a := range order {
		for j, b := range order {
			if Longer(a, b) != (i > j) {
				t.Errorf("%s is longer than %s: %t", a, b, i <= j)
			}
		}
	}
}

// TestUnknownWait checks that a denial whose end is unknown has a Retry-After but no reset.
func TestUnknownWait(t *testing.T) {
	t.Parallel()
	l := headgate.LimitDecision{Rule: "slots", Limit: headgate.Limit{Algorithm: headgate.Concurrency, Count: 20, Window: 10 * time.Second}}
	l.Result = headgate.Result{RetryAfter: headgate.Unknown, ResetAfter: 10 * time.Second, Time: time.Unix(1, 0)}
	d := headgate.Decision{RetryAfter: headgate.Unknown}
	if wait := RetryAfter(&d, func(int64) int64 { return 0 }); wait == nil || *wait != 1 {
		t.Errorf("Retry-After %v", wait)
	}
	if state := string(appendState(nil, ratelimitdraft.Draft11, &l)); strings.Contains(state, ";t=") {
		t.Errorf("RateLimit: %s", state)
	}
}
