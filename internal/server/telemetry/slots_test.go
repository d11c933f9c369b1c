package telemetry

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testSlots)
}

func testSlots(t *testing.T) {
	t.Helper()
	m, limiter := newEngine(t, memstore.New(memstore.Options{}), headgate.Rule{ID: "exports", Limit: headgate.Concurrent(5)},
		headgate.Rule{ID: "rate", Limit: headgate.PerMinute(5)})
	m.Limits(limiter.Rules)
	m.Slots(limiter)
	const inUse = `# HELP headgate_slots_in_use Units of concurrency limits that requests on this node have in use, by rule.
# TYPE headgate_slots_in_use gauge
headgate_slots_in_use{rule="exports"} %d
`
	expect(t, m, "headgate_slots_in_use", fmt.Sprintf(inUse, 0))
	var begun [3]headgate.Decision
	for i := range begun {
		var err error
		if begun[i], err = limiter.Begin(t.Context(), headgate.Request{}); err != nil || !begun[i].Holds() {
			t.Fatalf("%t, %v", begun[i].Holds(), err)
		}
	}
	time.Sleep(2 * time.Second)
	begun[0].Done(headgate.Outcome{Duration: 1500 * time.Millisecond})
	expect(t, m, "headgate_slots_in_use", fmt.Sprintf(inUse, 2))
	expect(t, m, "headgate_slot_duration_seconds", `# HELP headgate_slot_duration_seconds How long requests had units of concurrency limits in use, by rule.
# TYPE headgate_slot_duration_seconds summary
headgate_slot_duration_seconds_sum{rule="exports"} 1.5
headgate_slot_duration_seconds_count{rule="exports"} 1
`)
	expect(t, m, "headgate_rule_limit_window_seconds", `# HELP headgate_rule_limit_window_seconds Window of a limit of a rule, except calendar windows and concurrency limits.
# TYPE headgate_rule_limit_window_seconds gauge
headgate_rule_limit_window_seconds{limit="",rule="rate"} 60
`)
	if err := limiter.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSlotsOfManyRules checks that rules above the bound of labels are summed up as other, not exported twice.
func TestSlotsOfManyRules(t *testing.T) {
	t.Parallel()
	m := New("v1.2.3")
	all := map[string]headgate.SlotStats{}
	for i := range maxRules + 10 {
		all[fmt.Sprint("rule", i)] = headgate.SlotStats{InUse: 1, Requests: 1, Held: time.Second, Expired: 1, Repairs: 1}
	}
	none, err := headgate.Compile()
	if err != nil {
		t.Fatal(err)
	}
	m.registry.MustRegister(&slots{
		func() *headgate.RuleSet { return none }, func() map[string]headgate.SlotStats { return all }, m.decisions.rules,
	})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if l := metric.GetLabel(); len(l) == 1 && l[0].GetValue() == other {
				found++
				if sum := metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + metric.GetSummary().GetSampleSum(); sum != 10 {
					t.Errorf("%s of the others is %g", f.GetName(), sum)
				}
			}
		}
	}
	if found != 4 {
		t.Errorf("%d metrics of the others", found)
	}
}
