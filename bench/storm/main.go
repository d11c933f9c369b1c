// Command storm loads two nodes with ten times the limits and more: from callers that retry a denial at once, from callers that
// honour Retry-After, and from both. It uses three transports: the library, package client, and JSON over HTTP. It ends with a
// verdict for each target of docs/performance.md and fails if one is missed.
package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/storm"
	"github.com/headgate/headgate/internal/testenv"
)

// limit is the limit of every subject. Its bucket takes longer to fill than the whole seconds of Retry-After.
var limit = storm.Limit{Count: 20, Window: 2 * time.Second}

const subjects = 20

// plan is a named plan; its callers are per subject.
type plan struct {
	name string
	storm.Plan
}

var plans = []plan{
	{"retry at once, 11 times", storm.Plan{AtOnce: 4, Offered: 11}},
	{"retry at once, at full speed", storm.Plan{AtOnce: 4}},
	{"honour Retry-After", storm.Plan{Patient: 20}},
	{"both", storm.Plan{AtOnce: 2, Patient: 20}},
}

// result holds the measurements of one plan over one transport, by round.
type result struct {
	transport string
	plan      plan

	offered, goodput, worst, byRedis, allowedCost, denialCost, ratio []float64
}

func main() {
	paired.Main(3, 5*time.Second, func(s *paired.Suite) {
		stream, plain := storm.Served(s, testenv.BuildHeadgate(s), limit)
		var all []*result
		for _, transport := range []storm.Transport{storm.Library(s, limit), stream, plain} {
			all = append(all, measure(s, transport)...)
		}
		table(all, s.Rounds, s.Slice)
		for _, r := range all {
			judge(s, r)
		}
	})
}

// measure runs all plans in turn, round by round. Each run has its own subjects.
func measure(s *paired.Suite, transport storm.Transport) (results []*result) {
	for _, p := range plans {
		results = append(results, &result{transport: transport.Name, plan: p})
	}
	next := 0
	for range s.Rounds {
		for _, r := range results {
			plan := r.plan.Plan
			plan.Limit, plan.Subjects, plan.Lasts, plan.First = limit, subjects, s.Slice, next
			o, err := storm.Run(s.Context(), plan, transport.Check, transport.CPU)
			testenv.NoError(s, err)
			plan.First, plan.Offered = next+subjects, max(o.Multiple(), plan.Offered)
			var cost time.Duration
			cost, next, err = storm.AllowedCost(s.Context(), plan, transport.Check, transport.CPU)
			testenv.NoError(s, err)
			denial := o.DenialCost(cost)
			r.offered, r.goodput, r.worst = append(r.offered, o.Multiple()), append(r.goodput, o.Goodput()), append(r.worst, o.Worst)
			r.byRedis = append(r.byRedis, float64(o.ByRedis)/float64(o.Denied))
			r.allowedCost = append(r.allowedCost, micros(cost))
			r.denialCost = append(r.denialCost, micros(denial))
			r.ratio = append(r.ratio, float64(denial)/float64(cost))
		}
	}
	return results
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func table(all []*result, rounds int, lasts time.Duration) {
	fmt.Printf("%d subjects with %d per %s each, 2 nodes, %d rounds of %s; medians; CPU of the nodes and Redis\n",
		subjects, limit.Count, limit.Window, rounds, lasts)
	fmt.Printf("%-30s %-30s %10s %8s %10s %14s %14s\n", "", "callers", "offered ×", "goodput", "by Redis", "allowed CPU µs", "denied CPU µs")
	for _, r := range all {
		fmt.Printf("%-30s %-30s %10.1f %8.3f %10.3f", r.transport, r.plan.name, paired.Of(r.offered).Value,
			paired.Of(r.goodput).Value, paired.Of(r.byRedis).Value)
		if r.plan.Patient == 0 {
			fmt.Printf(" %14.1f %14.1f", paired.Of(r.allowedCost).Value, paired.Of(r.denialCost).Value)
		}
		fmt.Println()
	}
}

// judge judges the targets. The cost of a denial is judged only where all callers retry at once. Patient callers return at the same
// time, when their wait is over: Redis denies most of them, and their load cannot be reproduced with allowed checks, so there is no
// baseline.
func judge(s *paired.Suite, r *result) {
	name := r.transport + ", " + r.plan.name + ": "
	s.ExpectMin(name+"goodput", paired.Of(r.goodput), 0.9)
	s.ExpectMaxValue(name+"worst subject ÷ its limit, in any round", slices.Max(r.worst), 1)
	if r.plan.Patient == 0 {
		s.ExpectMin(name+"offered", paired.Of(r.offered), 10)
		s.ExpectMax(name+"denied ÷ allowed, CPU", paired.Of(r.ratio), 0.33)
	}
}
