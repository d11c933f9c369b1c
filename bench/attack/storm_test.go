package attack

import (
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/storm"
	"github.com/headgate/headgate/internal/testenv"
)

// TestRetryStorm loads two nodes with many times the limits, from callers that retry at once and from callers that honour RetryAfter.
// Nearly all of what the limits allow must be allowed, and no more. Where callers retry as fast as they can, a denial must cost the
// servers and Redis at most a third of an allowed check. At ten times a limit it costs more: bench/storm judges that.
func TestRetryStorm(t *testing.T) {
	limit := storm.Limit{Count: 20, Window: 2 * time.Second}
	library := storm.Library(t, limit)
	stream, plain := storm.Served(t, headgateProgram(t), limit)
	next := 0
	transports := []storm.Transport{library, stream, plain}
	if !long() {
		transports = transports[:2]
	}
	for _, transport := range transports {
		for _, plan := range []storm.Plan{{AtOnce: 4}, {Patient: 20}} {
			plan.Limit, plan.Subjects, plan.First = limit, size(10, 20), next
			plan.Lasts = time.Duration(size(1_000, 5_000)) * time.Millisecond
			runPlan(t, transport, plan)
			next += plan.Subjects
		}
	}
	const tries = 3 // the machine may be busy
	for try := 1; ; try++ {
		plan := storm.Plan{Limit: limit, Subjects: 20, AtOnce: 4, Lasts: time.Second, First: next}
		o := runPlan(t, stream, plan)
		plan.First += plan.Subjects
		var cost time.Duration
		var err error
		cost, next, err = storm.AllowedCost(t.Context(), plan, stream.Check, stream.CPU)
		testenv.NoError(t, err)
		denial := o.DenialCost(cost)
		t.Logf("%s: CPU of an allowed check %v, of a denial %v", stream.Name, cost, denial)
		if 3*denial <= cost {
			return
		}
		if try == tries {
			t.Fatalf("a denial takes %.2f of the CPU of an allowed check, want at most a third", float64(denial)/float64(cost))
		}
	}
}

// runPlan runs a plan and compares the allowed units with the limits.
func runPlan(t *testing.T, transport storm.Transport, plan storm.Plan) storm.Outcome {
	t.Helper()
	o, err := storm.Run(t.Context(), plan, transport.Check, transport.CPU)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, %d callers that retry at once and %d that wait, for each subject: offered %.1f times the limit, goodput %.3f, "+
		"worst subject ÷ limit %.3f, denials by Redis %.3f", transport.Name, o.AtOnce, o.Patient, o.Multiple(), o.Goodput(), o.Worst,
		float64(o.ByRedis)/float64(max(1, o.Denied)))
	if o.Goodput() < 0.9 {
		t.Errorf("%s: goodput %.3f, want 0.9", transport.Name, o.Goodput())
	}
	if o.Worst > 1 {
		t.Errorf("%s: a subject was allowed %.3f of its limit", transport.Name, o.Worst)
	}
	return o
}
