package telemetry

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
)

// Metrics contains the server's metrics, in a registry of their own.
type Metrics struct {
	registry  *prometheus.Registry
	decisions *decisions
	rules     *rules
	store     *store
	streams   atomic.Int64
}

// New returns the metrics of a server of this version.
func New(version string) *Metrics {
	registry := prometheus.NewRegistry()
	m := &Metrics{registry: registry, decisions: newDecisions(registry), rules: newRules(registry), store: newStore(registry)}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gauge("headgate_build_info", "Version of the server; the value is always 1.", func() int64 { return 1 }, "version", version)
	m.counter("headgate_admitted_units_total", "Units admitted, for each enforced limit that was charged.",
		m.decisions.units.Load)
	m.gauge("headgate_grpc_streams", "Open gRPC streams.", m.streams.Load)
	return m
}

// labelsOf converts alternating names and values to labels.
func labelsOf(labels []string) prometheus.Labels {
	all := prometheus.Labels{}
	for i := 0; i+1 < len(labels); i += 2 {
		all[labels[i]] = labels[i+1]
	}
	return all
}

// gauge registers a gauge whose value is read on collection.
func (m *Metrics) gauge(name, help string, value func() int64, labels ...string) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labelsOf(labels)}, func() float64 { return float64(value()) },
	))
}

// counter registers a counter whose value is read on collection.
func (m *Metrics) counter(name, help string, value func() int64, labels ...string) {
	m.registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labelsOf(labels)}, func() float64 { return float64(value()) },
	))
}

// Handler returns the handler of the metrics endpoint.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8})
}

// UsageLost registers the counter of units of metered rules that were not stored, or may not have been.
func (m *Metrics) UsageLost(units func() int64) {
	m.counter("headgate_usage_units_lost_total", "Units of metered rules that were not, or may not have been, written to usage_daily.", units)
}

// DenialsUnrecorded registers the counter of denials that were not recorded because there were too many.
func (m *Metrics) DenialsUnrecorded(denials func() int64) {
	m.counter("headgate_denials_dropped_total", "Denials not recorded for operators because there were too many.", denials)
}

// Connections registers the gauge of a listener's connections. Each listener may be registered once.
func (m *Metrics) Connections(listener string, open func() int64) {
	m.gauge("headgate_connections", "Open connections, by listener.", open, "listener", listener)
}

// Rejected registers the counter of rejected callers and returns a function that increments it. All combinations of the
// listeners and reasons are exported from the start: increase() does not see the first increment of a new series.
func (m *Metrics) Rejected(listeners, reasons []string) (count func(listener, reason string)) {
	rejected := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_callers_rejected_total", Help: "Calls rejected because the caller is not authorized, by listener and reason.",
	}, []string{"listener", "reason"})
	m.registry.MustRegister(rejected)
	for _, listener := range listeners {
		for _, reason := range reasons {
			rejected.WithLabelValues(listener, reason)
		}
	}
	return func(listener, reason string) { rejected.WithLabelValues(listener, reason).Inc() }
}

// Stream implements [grpc.StreamServerInterceptor]. It counts open streams.
func (m *Metrics) Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	m.streams.Add(1)
	defer m.streams.Add(-1)
	return next(server, stream)
}
