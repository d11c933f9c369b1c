package explain

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// A limit decided by on_store_failure has no usage, and a request that only such limits deny gets a 503.
func TestStoreFailure(t *testing.T) {
	t.Parallel()
	failed := func(allowed bool) headgate.LimitDecision {
		return headgate.LimitDecision{
			Rule: "calls", Limit: headgate.PerMinute(7), Cost: 1, Enforced: true,
			Result: headgate.Result{Allowed: allowed, Err: headgate.ErrUnavailable},
		}
	}
	exceeded := headgate.LimitDecision{
		Rule: "day", Limit: headgate.PerDay(1), Cost: 1, Enforced: true, Result: headgate.Result{RetryAfter: time.Hour},
	}
	for name, test := range map[string]struct {
		limits []headgate.LimitDecision
		status int
	}{
		"denied":            {[]headgate.LimitDecision{failed(false)}, http.StatusServiceUnavailable},
		"denied by another": {[]headgate.LimitDecision{failed(false), exceeded}, http.StatusTooManyRequests},
		"allowed":           {[]headgate.LimitDecision{failed(true)}, 0},
	} {
		r := New(&headgate.Explanation{Decision: headgate.Decision{Allowed: test.status == 0, Limits: test.limits}}, Question{}, Place{})
		if test.status > 0 && !strings.HasPrefix(r.Summary, strconv.Itoa(test.status)+": denied by ") || test.status == 0 && !r.Allowed {
			t.Errorf("%s: %s", name, r.Summary)
		}
		for _, l := range r.Limits {
			if l.Rule == "calls" && (l.DecidedBy != "failed" || l.Used != 0 || !strings.Contains(l.Verdict, "by on_store_failure") || l.used() != "unknown") {
				t.Errorf("%s: %+v", name, l)
			}
		}
	}
}
