package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
)

// decided are the labels of headgate_decisions_total. Those with few values are numbers, which are found in half the time.
type decided struct {
	call   call
	result result
	path   path
	tier   string
}

// ruled are the labels of headgate_rule_decisions_total.
type ruled struct {
	rule, tier string
	result     result
	path       path
}

// decisions are the metrics of what was decided.
type decisions struct {
	all        *series[decided]
	byRule     *series[ruled]
	candidates *series[string]
	duration   *histogram
	units      atomic.Int64
}

func newDecisions(registry *prometheus.Registry) *decisions {
	all := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_decisions_total", Help: "Answers, by what was asked, what was said, who decided, and the request's tier.",
	}, []string{"call", "result", "path", "tier"})
	byRule := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_rule_decisions_total",
		Help: "Requests that a rule applied to, by what it said (would_refuse: in shadow) and who decided.",
	}, []string{"rule", "tier", "result", "path"})
	candidates := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_rule_candidate_refusals_total", Help: "Requests beyond the limit that a rule has on trial.",
	}, []string{"rule"})
	// One list for all metrics, so that a rule is named in all of them or in none.
	rules, tiers := newNames(maxRules), newNames(maxTiers)
	d := &decisions{
		all: newSeries(
			func(l decided) decided { return decided{l.call, l.result, l.path, tiers.admit(l.tier)} },
			func(l decided) prometheus.Counter {
				return all.WithLabelValues(l.call.String(), l.result.String(), l.path.String(), l.tier)
			},
		),
		byRule: newSeries(
			func(l ruled) ruled { return ruled{rules.admit(l.rule), tiers.admit(l.tier), l.result, l.path} },
			func(l ruled) prometheus.Counter {
				return byRule.WithLabelValues(l.rule, l.tier, l.result.String(), l.path.String())
			},
		),
		candidates: newSeries(rules.admit, func(rule string) prometheus.Counter { return candidates.WithLabelValues(rule) }),
		duration:   newDuration("headgate_check_duration_seconds", "How long a decision took, the store included."),
	}
	// What is too many by rule and tier is counted by neither.
	d.byRule.most, d.byRule.rest = maxSeries, func(l ruled) ruled { return ruled{other, other, l.result, l.path} }
	registry.MustRegister(all, byRule, candidates, d.duration)
	return d
}

// Note counts a decision.
func (m *Metrics) Note(seen *headgate.Observation) {
	d, of := &seen.Decision, m.decisions
	if seen.Took > 0 {
		of.duration.Observe(seen.Took)
	}
	result := refused
	switch {
	case seen.Err != nil:
		result = failed
	case d.Allowed:
		result = allowed
	}
	asked := about{tier: seen.Attributes["tier"], by: d.Path, path: pathOf(d.Path)}
	asked.near = ends(asked.tier)
	call := callOf(seen.Call)
	of.all.of(decided{call, result, asked.path, asked.tier}, asked.near+71*uint(call)+19*uint(result)+uint(asked.path)).Inc()
	if seen.Call == headgate.CallCheck || seen.Call == headgate.CallReserve {
		of.rules(d, &asked)
	}
}

// about is what all rules of a decision have in common: the tier, and who decided, mostly.
type about struct {
	tier string
	near uint
	by   headgate.Path
	path path
}

// pathOf is who decided a limit.
func (a *about) pathOf(l *headgate.LimitDecision) path {
	if by := l.DecidedBy(); by != a.by {
		return pathOf(by)
	}
	return a.path
}

// rules counts each rule once, whose limits are neighbours, and the units that were admitted.
func (of *decisions) rules(d *headgate.Decision, asked *about) {
	units := int64(0)
	for i := 0; i < len(d.Limits); {
		first := &d.Limits[i]
		said := ruled{first.Rule, asked.tier, allowed, asked.pathOf(first)}
		tried := false
		for ; i < len(d.Limits) && d.Limits[i].Rule == first.Rule; i++ {
			l := &d.Limits[i]
			switch {
			case l.Origin == headgate.FromCandidate:
				tried = tried || l.WouldRefuse()
			case l.Refuses():
				said.result, said.path = refused, asked.pathOf(l)
			case l.WouldRefuse() && said.result == allowed:
				said.result, said.path = wouldRefuse, asked.pathOf(l)
			case l.Enforced:
				units += l.Cost
			}
		}
		of.count(said, asked.near)
		if tried {
			of.candidates.of(first.Rule, ends(first.Rule)).Inc()
		}
	}
	for _, rule := range d.Exempt {
		of.count(ruled{rule, asked.tier, allowed, pathOf(headgate.PathExempt)}, asked.near)
	}
	if d.Allowed && units > 0 {
		of.units.Add(units)
	}
}

func (of *decisions) count(said ruled, near uint) {
	of.byRule.of(said, ends(said.rule)+37*near+19*uint(said.result)+uint(said.path)).Inc()
}
