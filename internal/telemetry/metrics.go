package telemetry

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/ruledoc"
	"github.com/headgate/headgate/storewrap"
)

// Metrics are the server's, in a registry of their own.
type Metrics struct {
	registry  *prometheus.Registry
	start     time.Time
	decisions *series[decided]
	refusals  *series[refusal]
	duration  prometheus.Histogram
	failures  *prometheus.CounterVec
	inFlight  atomic.Int64
	streams   atomic.Int64

	rules                  *prometheus.GaugeVec
	rulesLoaded, rulesGood prometheus.Gauge
	rulesRefused           prometheus.Counter
	storeUp                prometheus.Gauge

	observe func(call string, asked headgate.Attributes, d *headgate.Decision)
}

// New makes metrics of nothing yet.
func New() *Metrics {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_decisions_total", Help: "Answers, by what was asked, what was said, who decided, and the request's tier.",
	}, []string{"call", "result", "path", "tier"})
	refusals := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_rule_refusals_total",
		Help: "Requests that exceeded a limit of a rule; they were refused if mode is enforce.",
	}, []string{"rule", "mode"})
	rules, tiers := newNames(maxRules), newNames(maxTiers)
	m := &Metrics{
		registry: prometheus.NewRegistry(), start: time.Now(),
		decisions: newSeries(
			func(d decided) decided { return decided{d.call, d.result, d.path, tiers.admit(d.tier)} },
			func(d decided) prometheus.Counter {
				return decisions.WithLabelValues(d.call, d.result, string(d.path), d.tier)
			},
		),
		refusals: newSeries(
			func(r refusal) refusal { return refusal{rules.admit(r.rule), r.mode} },
			func(r refusal) prometheus.Counter { return refusals.WithLabelValues(r.rule, r.mode) },
		),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "headgate_check_duration_seconds", Help: "How long a decision took, the store included.",
			Buckets: []float64{50e-6, 100e-6, 250e-6, 500e-6, .001, .0025, .005, .0075, .01, .015, .025, .05, .1, .25},
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_store_errors_total",
			Help: "Decisions for which the store did not answer, by whether it may have counted.",
		}, []string{"kind"}),
		rules: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headgate_rules_info", Help: "Version of the rules in use; the value is 1.",
		}, []string{"version"}),
		rulesLoaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_rules_loaded_timestamp_seconds", Help: "When the rules in use were read.",
		}),
		rulesGood: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_rules_files_good", Help: "1 if the rules in use are those of the files, 0 if the files are bad.",
		}),
		rulesRefused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_rules_refused_total", Help: "Times that the rule files became bad.",
		}),
		storeUp: prometheus.NewGauge(prometheus.GaugeOpts{Name: "headgate_store_up", Help: "1 if the store answers."}),
	}
	for _, kind := range []string{unavailable, unanswered} {
		m.failures.WithLabelValues(kind)
	}
	m.registry.MustRegister(
		decisions, refusals, m.duration, m.failures, m.rules, m.rulesLoaded, m.rulesGood, m.rulesRefused, m.storeUp,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.number("headgate_checks_in_flight", "Decisions that are being made.", nil, m.inFlight.Load)
	m.number("headgate_grpc_streams", "gRPC streams that are open.", nil, m.streams.Load)
	return m
}

// number registers a gauge that is asked for its value.
func (m *Metrics) number(name, help string, labels prometheus.Labels, value func() int64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(value()) },
	))
}

// total registers a counter that is asked for its value.
func (m *Metrics) total(name, help string, value func() int64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) },
	))
}

// Handler shows the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8})
}

// Rules notes what became of the rules.
func (m *Metrics) Rules(e ruledoc.Event) {
	switch e.Kind {
	case ruledoc.Applied, ruledoc.StartedFromKept:
		m.rules.Reset()
		m.rules.WithLabelValues(e.Version).Set(1)
		m.rulesLoaded.Set(float64(time.Now().UnixMilli()) / 1000)
	}
	switch e.Kind {
	case ruledoc.Applied, ruledoc.Recovered:
		m.rulesGood.Set(1)
	case ruledoc.Refused, ruledoc.StartedFromKept:
		m.rulesGood.Set(0)
		m.rulesRefused.Inc()
	}
}

// StoreUp notes whether the store answers.
func (m *Metrics) StoreUp(up bool) {
	value := 0.
	if up {
		value = 1
	}
	m.storeUp.Set(value)
}

// Store shows what stands between the limiter and the store.
func (m *Metrics) Store(stats func() storewrap.Stats) {
	m.number("headgate_store_parts_away", "Parts of the store that are left alone because they do not answer.", nil,
		func() int64 { return int64(stats().Away) })
	m.number("headgate_local_counters_waiting", "Counters with local admissions that the store is yet to be charged.", nil,
		func() int64 { return int64(stats().Waiting) })
	m.total("headgate_local_units_charged_total", "Units admitted locally that the store was charged afterwards.",
		func() int64 { return stats().Charged })
	m.total("headgate_store_unanswered_total", "Units that the store was asked for and did not answer in time.",
		func() int64 { return stats().Unanswered })
	m.total("headgate_store_shed_total", "Calls that were not made because too many were under way.",
		func() int64 { return stats().Shed })
}

// UsageLost shows how many units of metered rules were not written, or may not have been.
func (m *Metrics) UsageLost(units func() int64) {
	m.total("headgate_usage_lost_units_total", "Units of metered rules that were not written to usage_daily, or may not have been.", units)
}

// Connections shows how many a listener has. Each listener may be named once.
func (m *Metrics) Connections(listener string, open func() int64) {
	m.number("headgate_connections", "Connections that are open.", prometheus.Labels{"listener": listener}, open)
}

// Stream counts streams while they are open.
func (m *Metrics) Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	m.streams.Add(1)
	defer m.streams.Add(-1)
	return next(server, stream)
}
