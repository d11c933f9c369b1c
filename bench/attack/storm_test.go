package attack

import (
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/storm"
	"github.com/headgate/headgate/internal/testenv"
)

// TestRetryStorm offers two nodes many times what limits allow, by callers that retry at once and by callers that wait as long as
// they were told. Nearly all of what the limits allow is allowed, and nothing beyond; and where callers retry as fast as they can, a
// denial costs the servers and Redis a third of an allowed check at most. At ten times a limit it costs more: bench/storm judges that.
func TestRetryStorm(t *testing.T) {
	limit := storm.Limit{Count: 20, Window: 2 * time.Second}
	library := storm.Library(t, limit)
	stream, plain := storm.Served(t, headgateProgram(t), limit)
	next := 0
	forms := []storm.Transport{library, stream, plain}
	if !long() {
		forms = forms[:2]
	}
	for _, form := range forms {
		for _, plan := range []storm.Plan{{AtOnce: 4}, {Patient: 20}} {
			plan.Limit, plan.Subjects, plan.First = limit, size(10, 20), next
			plan.Lasts = time.Duration(size(1_000, 5_000)) * time.Millisecond
			play(t, form, plan)
			next += plan.Subjects
		}
	}
	const tries = 3 // others may use the machine meanwhile
	for try := 1; ; try++ {
		plan := storm.Plan{Limit: limit, Subjects: 20, AtOnce: 4, Lasts: time.Second, First: next}
		o := play(t, stream, plan)
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
			t.Fatalf("a denial takes %.2f of the CPU of an allowed check, want a third at most", float64(denial)/float64(cost))
		}
	}
}

// play runs a plan, and holds what is allowed against the limits.
func play(t *testing.T, form storm.Transport, plan storm.Plan) storm.Outcome {
	t.Helper()
	o, err := storm.Run(t.Context(), plan, form.Check, form.CPU)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, %d callers that retry at once and %d that wait, for each subject: offered %.1f times the limit, goodput %.3f, "+
		"most of a limit %.3f, denials by Redis %.3f", form.Name, o.AtOnce, o.Patient, o.Multiple(), o.Goodput(), o.Worst,
		float64(o.ByRedis)/float64(max(1, o.Denied)))
	if o.Goodput() < 0.9 {
		t.Errorf("%s: goodput %.3f, want 0.9", form.Name, o.Goodput())
	}
	if o.Worst > 1 {
		t.Errorf("%s: a subject was allowed %.3f of its limit", form.Name, o.Worst)
	}
	return o
}
