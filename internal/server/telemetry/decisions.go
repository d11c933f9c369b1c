package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
)

// decisions are the metrics of what was decided.
type decisions struct {
	all, byRule *prometheus.CounterVec
	duration    *histogram
	units       atomic.Int64
	tiers       *table[*tier]
	candidates  *table[prometheus.Counter]
	// rules is one list for all metrics, so that a rule is named in all of them or in none.
	rules *names
	// series is how many byRule has. What is too many by rule and tier is counted by neither, in rest.
	series atomic.Int64
	rest   *outcomes
}

// tier has the counters of one tier.
type tier struct {
	calls [len(calls)]*outcomes
	rules *table[*outcomes]
}

// outcomes are the counters of a tier and a call, or a tier and a rule, by result and path. Each is made when it is first needed.
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
		Name: "headgate_rule_candidate_denials_total", Help: "Requests beyond the limit that a rule has on trial.",
	}, []string{"rule"})
	d := &decisions{
		all: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_decisions_total", Help: "Answers, by what was asked, what was said, who decided, and the request's tier.",
		}, []string{"call", "result", "path", "tier"}),
		byRule: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_rule_decisions_total",
			Help: "Requests that a rule applied to, by what it said (would_deny: in shadow) and who decided.",
		}, []string{"rule", "tier", "result", "path"}),
		duration: newDuration("headgate_check_duration_seconds", "How long a decision took, the store included."),
		rules:    newNames(maxRules),
	}
	d.tiers = newTable(newNames(maxTiers), d.newTier)
	d.candidates = newTable(d.rules, func(rule string) prometheus.Counter { return candidates.WithLabelValues(rule) })
	d.rest = &outcomes{build: func(result, path string) prometheus.Counter {
		return d.byRule.WithLabelValues(other, other, result, path)
	}}
	registry.MustRegister(d.all, d.byRule, candidates, d.duration)
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

// Note counts a decision.
func (m *Metrics) Note(seen *headgate.Observation) {
	d, of := &seen.Decision, m.decisions
	if seen.Duration > 0 {
		of.duration.Observe(seen.Duration)
	}
	result := denied
	switch {
	case seen.Err != nil:
		result = failed
	case d.Allowed:
		result = allowed
	}
	t, by := of.tiers.of(seen.Attributes["tier"]), pathOf(d.Path)
	t.calls[callOf(seen.Call)].inc(result, by)
	if seen.Call == headgate.CallCheck || seen.Call == headgate.CallReserve {
		of.noteRules(t, d, by)
	}
}

// noteRules counts what each rule said, once, whose limits are neighbours, and the units that were admitted.
func (of *decisions) noteRules(t *tier, d *headgate.Decision, by path) {
	units := int64(0)
	for i := 0; i < len(d.Limits); {
		first := &d.Limits[i]
		result, decisive, tried := allowed, first, false
		for ; i < len(d.Limits) && d.Limits[i].Rule == first.Rule; i++ {
			l := &d.Limits[i]
			switch {
			case l.Origin == headgate.FromCandidate:
				tried = tried || l.WouldDeny()
			case l.Denies():
				result, decisive = denied, l
			case l.WouldDeny() && result == allowed:
				result, decisive = wouldDeny, l
			case l.Enforced:
				units += l.Cost
			}
		}
		decidedBy := by // mostly who decided all of them
		if p := decisive.DecidedBy(); p != d.Path {
			decidedBy = pathOf(p)
		}
		t.rules.of(first.Rule).inc(result, decidedBy)
		if tried {
			of.candidates.of(first.Rule).Inc()
		}
	}
	for _, rule := range d.Exempt {
		t.rules.of(rule).inc(allowed, pathOf(headgate.PathExempt))
	}
	if d.Allowed && units > 0 {
		of.units.Add(units)
	}
}
