package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
)

// decisions contains the metrics of decisions.
type decisions struct {
	all, byRule *prometheus.CounterVec
	duration    *histogram
	units       atomic.Int64
	tiers       *table[*tier]
	candidates  *table[prometheus.Counter]
	skipped     *table[prometheus.Counter]
	// rules is shared by all metrics, so that a rule is named in all of them or in none.
	rules *names
	// series is the number of series of byRule. Decisions over maxSeries are counted in rest, without rule and tier.
	series atomic.Int64
	rest   *outcomes
}

// tier contains the counters of one tier.
type tier struct {
	calls [len(calls)]*outcomes
	rules *table[*outcomes]
}

// outcomes contains the counters of a tier and a call, or of a tier and a rule, by result and path. A counter is created on
// first use.
type outcomes struct {
	build func(result, path string) prometheus.Counter
	made  [len(results)][len(paths)]atomic.Pointer[prometheus.Counter]
}

func (o *outcomes) inc(r result, p path) {
	c := o.made[r][p].Load()
	if c == nil {
		c = new(o.build(results[r], string(paths[p])))
		o.made[r][p].Store(c)
	}
	(*c).Inc()
}

func newDecisions(registry *prometheus.Registry) *decisions {
	candidates := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_rule_candidate_denials_total", Help: "Requests over the candidate limit of a rule.",
	}, []string{"rule"})
	skipped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_limits_skipped_total",
		Help: "Requests that the concurrency limit of a rule was not applied to, because their end is not reported.",
	}, []string{"rule"})
	d := &decisions{
		all: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_decisions_total", Help: "Decisions, by call, result, path and tier of the request.",
		}, []string{"call", "result", "path", "tier"}),
		byRule: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_rule_decisions_total",
			Help: "Requests that a rule applied to, by tier, result (would_deny is a denial in shadow mode) and path.",
		}, []string{"rule", "tier", "result", "path"}),
		duration: newDuration("headgate_check_duration_seconds", "Duration of decisions, including store calls."),
		rules:    newNames(maxRules),
	}
	d.tiers = newTable(newNames(maxTiers), d.newTier)
	d.candidates = newTable(d.rules, func(rule string) prometheus.Counter { return candidates.WithLabelValues(rule) })
	d.skipped = newTable(d.rules, func(rule string) prometheus.Counter { return skipped.WithLabelValues(rule) })
	d.rest = &outcomes{build: func(result, path string) prometheus.Counter {
		return d.byRule.WithLabelValues(other, other, result, path)
	}}
	registry.MustRegister(d.all, d.byRule, candidates, skipped, d.duration)
	return d
}

func (of *decisions) newTier(name string) *tier {
	t := &tier{rules: newTable(of.rules, func(rule string) *outcomes { return of.newRule(rule, name) })}
	for i, call := range calls {
		t.calls[i] = &outcomes{build: func(result, path string) prometheus.Counter {
			return of.all.WithLabelValues(string(call), result, path, name)
		}}
	}
	return t
}

func (of *decisions) newRule(rule, tier string) *outcomes {
	if of.series.Load() >= maxSeries {
		return of.rest
	}
	return &outcomes{build: func(result, path string) prometheus.Counter {
		if of.series.Add(1) > maxSeries {
			return of.rest.build(result, path)
		}
		return of.byRule.WithLabelValues(rule, tier, result, path)
	}}
}

// Observe counts a decision.
func (m *Metrics) Observe(o *headgate.Observation) {
	d, of := &o.Decision, m.decisions
	if o.Duration > 0 {
		of.duration.Observe(o.Duration)
	}
	result := denied
	switch {
	case o.Err != nil:
		result = failed
	case d.Allowed:
		result = allowed
	}
	t, by := of.tiers.of(o.Attributes["tier"]), pathOf(d.Path)
	t.calls[callOf(o.Call)].inc(result, by)
	if o.Call == headgate.CallCheck || o.Call == headgate.CallReserve {
		of.countRules(t, d, by)
	}
}

// countRules counts the result of each rule once, skipped rules, and the admitted units. The limits of a rule are adjacent in d.Limits.
func (of *decisions) countRules(t *tier, d *headgate.Decision, by path) {
	units := int64(0)
	for i := 0; i < len(d.Limits); {
		first := &d.Limits[i]
		result, decisive, candidateDenies := allowed, first, false
		for ; i < len(d.Limits) && d.Limits[i].Rule == first.Rule; i++ {
			l := &d.Limits[i]
			switch {
			case l.Origin == headgate.FromCandidate:
				candidateDenies = candidateDenies || l.WouldDeny()
			case l.Denies():
				result, decisive = denied, l
			case l.WouldDeny() && result == allowed:
				result, decisive = wouldDeny, l
			case l.Enforced:
				units += l.Cost
			}
		}
		decidedBy := by // usually the same for all rules
		if p := decisive.DecidedBy(); p != d.Path {
			decidedBy = pathOf(p)
		}
		t.rules.of(first.Rule).inc(result, decidedBy)
		if candidateDenies {
			of.candidates.of(first.Rule).Inc()
		}
	}
	for _, rule := range d.Exempt {
		t.rules.of(rule).inc(allowed, pathOf(headgate.PathExempt))
	}
	for _, rule := range d.Skipped {
		of.skipped.of(rule).Inc()
	}
	if d.Allowed && units > 0 {
		of.units.Add(units)
	}
}
