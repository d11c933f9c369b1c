package telemetry

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/ruledoc"
)

// rules contains the metrics of the rules themselves.
type rules struct {
	info     *prometheus.GaugeVec
	loaded   prometheus.Gauge
	good     prometheus.Gauge
	failures prometheus.Counter
}

func newRules(registry *prometheus.Registry) *rules {
	with := promauto.With(registry)
	return &rules{
		info: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headgate_rules_info", Help: "Version of the rules in use; the value is always 1.",
		}, []string{"version"}),
		loaded: with.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_rules_last_change_timestamp_seconds", Help: "Time at which the rules in use were loaded.",
		}),
		good: with.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_rules_last_load_successful", Help: "Whether the last load of the rules succeeded: 0 if the files or PostgreSQL are unavailable or contain invalid rules.",
		}),
		failures: with.NewCounter(prometheus.CounterOpts{
			Name: "headgate_rules_load_failures_total", Help: "Failed loads of the rules.",
		}),
	}
}

// Rules counts an event of the rules.
func (m *Metrics) Rules(e ruledoc.Event) {
	r := m.rules
	switch e.Kind {
	case ruledoc.Applied, ruledoc.StartedFromLastGood:
		r.info.Reset()
		r.info.WithLabelValues(e.Version).Set(1)
		r.loaded.SetToCurrentTime()
	}
	switch e.Kind {
	case ruledoc.Applied, ruledoc.Recovered:
		r.good.Set(1)
	case ruledoc.Rejected, ruledoc.StartedFromLastGood:
		r.good.Set(0)
		r.failures.Inc()
	}
}

// RulesChecked registers the gauge of the time at which the rules were last known to be current.
func (m *Metrics) RulesChecked(at func() time.Time) {
	promauto.With(m.registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_rules_last_check_timestamp_seconds",
		Help: "Time at which PostgreSQL last had no rules newer than those in use.",
	}, func() float64 { return float64(at().UnixMilli()) / 1000 })
}

// Limits registers the gauges of the limits of the rules in use.
func (m *Metrics) Limits(rules func() *headgate.RuleSet) { m.registry.MustRegister(limits(rules)) }

// limits is a collector that reads the rules on collection.
type limits func() *headgate.RuleSet

var (
	limitUnits = prometheus.NewDesc("headgate_rule_limit",
		"Units that a limit of a rule allows per window, without tiers and overrides.", []string{"rule", "limit"}, nil)
	limitWindow = prometheus.NewDesc("headgate_rule_limit_window_seconds",
		"Window of a limit of a rule, except calendar windows and concurrency limits.", []string{"rule", "limit"}, nil)
)

// Describe implements [prometheus.Collector].
func (limits) Describe(all chan<- *prometheus.Desc) {
	all <- limitUnits
	all <- limitWindow
}

// Collect implements [prometheus.Collector].
func (of limits) Collect(all chan<- prometheus.Metric) {
	show := func(rule, name string, l *headgate.Limit) {
		all <- prometheus.MustNewConstMetric(limitUnits, prometheus.GaugeValue, float64(l.Count), rule, name)
		if l.Window > 0 && l.Algorithm != headgate.Concurrency { // that is its lease
			all <- prometheus.MustNewConstMetric(limitWindow, prometheus.GaugeValue, l.Window.Seconds(), rule, name)
		}
	}
	rules := of().Rules()
	for i := range rules[:min(len(rules), maxRules)] {
		r := &rules[i]
		if r.Limit.Count > 0 {
			show(r.ID, "", &r.Limit)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			l := r.Limits[name]
			show(r.ID, name, &l)
		}
	}
}
