package telemetry

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate"
)

// Whatever is counted while it is shown again and again is shown once: answers that are given often, and such as have no place
// or lose it, and rules for which an answer has no room.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const callers, each, most = 4, 20_000, mostRules + 2
	m := New("")
	rules := make([]string, 200)
	for i := range rules {
		rules[i] = fmt.Sprint("rule-", i)
	}
	var want [2][200]atomic.Int64 // by whether it passed, and rule
	var asking, showing sync.WaitGroup
	var over atomic.Bool
	for caller := range callers {
		asking.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(caller)))
			for range each {
				pass := random.IntN(2)
				seen := headgate.Observation{
					Call: headgate.CallCheck, Attributes: headgate.Attributes{"tier": strconv.Itoa(random.IntN(5))},
					Decision: headgate.Decision{Allowed: pass == 1, Path: headgate.PathLease},
				}
				first := int(min(random.ExpFloat64()*20, 190))
				for i := range random.IntN(most + 1) {
					l := headgate.LimitDecision{Rule: rules[first+i], Enforced: true}
					l.Allowed, l.Path = pass == 1, headgate.PathLease
					seen.Decision.Limits = append(seen.Decision.Limits, l)
					want[pass][first+i].Add(1)
				}
				m.Note(&seen)
			}
		})
	}
	showing.Go(func() {
		for !over.Load() {
			counted(m)
		}
	})
	asking.Wait()
	over.Store(true)
	showing.Wait()
	got, all := map[said]float64{}, 0.
	for labels, c := range counted(m).byRule.all {
		got[labels.said] += testutil.ToFloat64(c)
	}
	for _, c := range m.decisions.all.all {
		all += testutil.ToFloat64(c)
	}
	if all != callers*each {
		t.Errorf("%v answers, not %d", all, callers*each)
	}
	for pass, result := range []result{refused, allowed} {
		for i, rule := range rules {
			s := said{rule, result, pathOf(headgate.PathLease)}
			if n := float64(want[pass][i].Load()); got[s] != n {
				t.Errorf("%s %s: %v, not %v", rule, result, got[s], n)
			}
			delete(got, s)
		}
	}
	if len(got) != 0 {
		t.Errorf("nobody said %v", got)
	}
	// Who is not heard of any more makes place.
	counted(m)
	for i := range m.decisions.answers.places {
		if m.decisions.answers.places[i].Load() != nil {
			t.Fatal("an answer keeps its place")
		}
	}
}
