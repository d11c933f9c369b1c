package telemetry

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
)

// Slots registers the metrics of concurrency limits.
func (m *Metrics) Slots(l *headgate.Limiter) {
	m.registry.MustRegister(&slots{l.Rules, l.SlotStats, m.decisions.rules})
}

// slots is a collector that reads the numbers on collection. Rules that were not used are exported too: increase() does not see the first
// increment of a new series.
type slots struct {
	rules func() *headgate.RuleSet
	stats func() map[string]headgate.SlotStats
	names *names
}

var (
	slotsInUse = prometheus.NewDesc("headgate_slots_in_use",
		"Units of concurrency limits that requests on this node have in use, by rule.", []string{"rule"}, nil)
	slotDuration = prometheus.NewDesc("headgate_slot_duration_seconds",
		"How long requests had units of concurrency limits in use, by rule.", []string{"rule"}, nil)
	slotsExpired = prometheus.NewDesc("headgate_slots_expired_total",
		"Units of concurrency limits that were in use when their lease ended, by rule.", []string{"rule"}, nil)
	slotRepairs = prometheus.NewDesc("headgate_slot_repairs_total",
		"How often the store had, or may have had, another number of units in use than this node, by rule.", []string{"rule"}, nil)
)

// Describe implements [prometheus.Collector].
func (*slots) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{slotsInUse, slotDuration, slotsExpired, slotRepairs} {
		all <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *slots) Collect(all chan<- prometheus.Metric) {
	byLabel := map[string]headgate.SlotStats{}
	for _, r := range s.rules().Rules() {
		for _, l := range append(slices.Collect(maps.Values(r.Limits)), r.Limit) {
			if l.Algorithm == headgate.Concurrency {
				byLabel[s.names.admit(r.ID)] = headgate.SlotStats{}
			}
		}
	}
	for rule, one := range s.stats() {
		label := s.names.admit(rule)
		sum := byLabel[label]
		sum.InUse += one.InUse
		sum.Requests += one.Requests
		sum.Held += one.Held
		sum.Expired += one.Expired
		sum.Repairs += one.Repairs
		byLabel[label] = sum
	}
	for rule, of := range byLabel {
		all <- prometheus.MustNewConstMetric(slotsInUse, prometheus.GaugeValue, float64(of.InUse), rule)
		all <- prometheus.MustNewConstSummary(slotDuration, uint64(of.Requests), of.Held.Seconds(), nil, rule)
		all <- prometheus.MustNewConstMetric(slotsExpired, prometheus.CounterValue, float64(of.Expired), rule)
		all <- prometheus.MustNewConstMetric(slotRepairs, prometheus.CounterValue, float64(of.Repairs), rule)
	}
}
