package main

import (
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/regionjudge"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/ruledoc"
)

// rule is a limit and its load.
type rule struct {
	regionjudge.Rule
	maxCost int64 // of a request; costs are 1 to maxCost
}

// rules returns the rules. Their limits are small, so that few requests reach them, and their windows short, so that a run has several.
func rules() []rule {
	return []rule{
		newRule("clock", 1, headgate.Limit{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 250, Window: 5 * time.Second}),
		newRule("fixed", 1, headgate.Limit{Algorithm: headgate.FixedWindow, Count: 200, Window: 4 * time.Second}),
		newRule("costs", 20, headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Window: 5 * time.Second}),
		newRule("sliding", 1, headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 200, Window: 4 * time.Second}),
		newRule("burst", 3, headgate.Limit{Algorithm: headgate.TokenBucket, Count: 50, Window: time.Second, Burst: 400}),
		strict(newRule("strict", 1, headgate.Limit{Algorithm: headgate.TokenBucket, Count: 50, Window: time.Second, Burst: 150})),
	}
}

func newRule(id string, maxCost int64, limit headgate.Limit) rule {
	return rule{regionjudge.Rule{ID: id, Limit: limit}, maxCost}
}

func strict(r rule) rule {
	r.Strict = true
	return r
}

// rate returns the units per second that the limit allows in the long run.
func (r *rule) rate() float64 { return float64(r.Limit.Count) / r.Limit.Window.Seconds() }

// meanCost returns the mean cost of a request.
func (r *rule) meanCost() float64 { return float64(1+r.maxCost) / 2 }

// document returns the rules as servers read them.
func (w *world) document() string {
	var all []string
	for _, r := range rules() {
		written := headgate.Rule{
			ID: r.ID, Match: headgate.Match{Path: "/" + r.ID}, By: []string{"user"}, Limit: r.Limit, Strict: r.Strict,
		}
		if w.plan.shared {
			written.Regions = headgate.SharedRegions
		}
		text, err := ruledoc.EncodeRule(written)
		testenv.NoError(w, err)
		all = append(all, string(text))
	}
	return "rules: [" + strings.Join(all, ",\n") + "]\n"
}
