package telemetry

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
)

// Metrics are the server's, in a registry of their own.
type Metrics struct {
	registry  *prometheus.Registry
	decisions *decisions
	rules     *rules
	store     *store
	streams   atomic.Int64
}

// New makes metrics of nothing yet, of a program of this version.
func New(version string) *Metrics {
	registry := prometheus.NewRegistry()
	m := &Metrics{registry: registry, decisions: newDecisions(registry), rules: newRules(registry), store: newStore(registry)}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.number("headgate_build_info", "Version of the program; the value is 1.", func() int64 { return 1 }, "version", version)
	m.total("headgate_admitted_units_total", "Units that were admitted, of each enforced limit that a request is charged on.",
		m.decisions.units.Load)
	m.number("headgate_grpc_streams", "gRPC streams that are open.", m.streams.Load)
	return m
}

// labelled are labels with their values, in turn.
func labelled(labels []string) prometheus.Labels {
	all := prometheus.Labels{}
	for i := 0; i+1 < len(labels); i += 2 {
		all[labels[i]] = labels[i+1]
	}
	return all
}

// number registers a gauge that is asked for its value.
func (m *Metrics) number(name, help string, value func() int64, labels ...string) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labelled(labels)}, func() float64 { return float64(value()) },
	))
}

// total registers a counter that is asked for its value.
func (m *Metrics) total(name, help string, value func() int64, labels ...string) {
	m.registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labelled(labels)}, func() float64 { return float64(value()) },
	))
}

// Handler shows the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8})
}

// UsageLost shows how many units of metered rules were not written, or may not have been.
func (m *Metrics) UsageLost(units func() int64) {
	m.total("headgate_usage_units_lost_total", "Units of metered rules that were not written to usage_daily, or may not have been.", units)
}

// DenialsUnrecorded shows how many denials were too many to be written down.
func (m *Metrics) DenialsUnrecorded(denials func() int64) {
	m.total("headgate_denials_dropped_total", "Denials that were not written down for operators, since there were too many.", denials)
}

// Connections shows how many a listener has. Each listener may be named once.
func (m *Metrics) Connections(listener string, open func() int64) {
	m.number("headgate_connections", "Connections that are open.", open, "listener", listener)
}

// Rejected shows how many callers were rejected. It returns what counts one, by one of the listeners and reasons, which are shown from
// the start: of a series that begins with 1 no alert sees the 1.
func (m *Metrics) Rejected(listeners, reasons []string) (count func(listener, reason string)) {
	rejected := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_callers_rejected_total", Help: "Calls of those who may not ask, by listener and by what is wrong with them.",
	}, []string{"listener", "reason"})
	m.registry.MustRegister(rejected)
	for _, listener := range listeners {
		for _, reason := range reasons {
			rejected.WithLabelValues(listener, reason)
		}
	}
	return func(listener, reason string) { rejected.WithLabelValues(listener, reason).Inc() }
}

// Stream counts streams while they are open.
func (m *Metrics) Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	m.streams.Add(1)
	defer m.streams.Add(-1)
	return next(server, stream)
}
