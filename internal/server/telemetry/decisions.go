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
	said
	tier string
}

// said is what a rule said.
type said struct {
	rule   string
	result result
	path   path
}

// decisions are the metrics of what was decided.
type decisions struct {
	all        *series[decided]
	byRule     *series[ruled]
	candidates *series[string]
	answers    answers
	duration   *histogram
	units      atomic.Int64
	shown      []prometheus.Collector
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
			func(l ruled) ruled { return ruled{said{rules.admit(l.rule), l.result, l.path}, tiers.admit(l.tier)} },
			func(l ruled) prometheus.Counter {
				return byRule.WithLabelValues(l.rule, l.tier, l.result.String(), l.path.String())
			},
		),
		candidates: newSeries(rules.admit, func(rule string) prometheus.Counter { return candidates.WithLabelValues(rule) }),
		duration:   newDuration("headgate_check_duration_seconds", "How long a decision took, the store included."),
	}
	// What is too many by rule and tier is counted by neither.
	d.byRule.most, d.byRule.rest = maxSeries, func(l ruled) ruled { return ruled{said{other, l.result, l.path}, other} }
	d.shown = []prometheus.Collector{all, byRule, candidates}
	registry.MustRegister(d, d.duration)
	return d
}

// Describe is part of a collector.
func (of *decisions) Describe(all chan<- *prometheus.Desc) {
	for _, c := range of.shown {
		c.Describe(all)
	}
}

// Collect is part of a collector.
func (of *decisions) Collect(all chan<- prometheus.Metric) {
	of.answers.sweep(of.add)
	for _, c := range of.shown {
		c.Collect(all)
	}
}

// add counts an answer that was given a number of times.
func (of *decisions) add(a *answer, times int64) {
	of.all.of(a.decided).Add(float64(times))
	for i := range a.rules[:a.count] {
		of.byRule.of(ruled{a.rules[i], a.tier}).Add(float64(times))
	}
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
	a := answer{decided: decided{callOf(seen.Call), result, pathOf(d.Path), seen.Attributes["tier"]}}
	if seen.Call == headgate.CallCheck || seen.Call == headgate.CallReserve {
		of.rules(d, &a)
	}
	if !of.answers.count(&a) {
		of.add(&a, 1)
	}
}

// rules notes what each rule said, once, whose limits are neighbours, and counts the units that were admitted.
func (of *decisions) rules(d *headgate.Decision, a *answer) {
	units := int64(0)
	for i := 0; i < len(d.Limits); {
		first := &d.Limits[i]
		s := said{first.Rule, allowed, a.pathOf(d, first)}
		tried := false
		for ; i < len(d.Limits) && d.Limits[i].Rule == first.Rule; i++ {
			l := &d.Limits[i]
			switch {
			case l.Origin == headgate.FromCandidate:
				tried = tried || l.WouldRefuse()
			case l.Refuses():
				s.result, s.path = refused, a.pathOf(d, l)
			case l.WouldRefuse() && s.result == allowed:
				s.result, s.path = wouldRefuse, a.pathOf(d, l)
			case l.Enforced:
				units += l.Cost
			}
		}
		of.say(a, s)
		if tried {
			of.candidates.of(first.Rule).Inc()
		}
	}
	for _, rule := range d.Exempt {
		of.say(a, said{rule, allowed, pathOf(headgate.PathExempt)})
	}
	if d.Allowed && units > 0 {
		of.units.Add(units)
	}
}

// say notes what a rule said, or counts it at once if there is no room for it.
func (of *decisions) say(a *answer, s said) {
	if a.count == len(a.rules) {
		of.byRule.of(ruled{s, a.tier}).Inc()
		return
	}
	a.rules[a.count] = s
	a.count++
}

// pathOf is who decided a limit: mostly who decided all of them.
func (a *answer) pathOf(d *headgate.Decision, l *headgate.LimitDecision) path {
	if by := l.DecidedBy(); by != d.Path {
		return pathOf(by)
	}
	return a.path
}
