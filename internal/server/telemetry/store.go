package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/storewrap"
)

// store contains the metrics of the store.
type store struct {
	up       prometheus.Gauge
	duration *histogram
	replaced prometheus.Counter
	evicted  prometheus.Counter
	servers  map[string]int64 // evicted keys by server id
}

func newStore(registry *prometheus.Registry) *store {
	s := &store{
		up:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "headgate_store_up", Help: "Whether the store responds."}),
		duration: newDuration("headgate_store_call_duration_seconds", "Duration of store calls that a decision waited for."),
		replaced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_store_replaced_total", Help: "Primaries of the store that were replaced or restarted.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_store_evicted_keys_total", Help: "Keys evicted by the store; each is a lost counter.",
		}),
		servers: map[string]int64{},
	}
	registry.MustRegister(s.up, s.duration, s.replaced, s.evicted)
	return s
}

// StoreUp records whether the store responds.
func (m *Metrics) StoreUp(up bool) {
	value := 0.
	if up {
		value = 1
	}
	m.store.up.Set(value)
}

// StoreCall records the duration of a store call.
func (m *Metrics) StoreCall(elapsed time.Duration) { m.store.duration.Observe(elapsed) }

// StoreServers records how many keys each primary has evicted since it started. The id of a primary must change when it restarts.
// Primaries may be missing from a call. Concurrent calls are not allowed.
func (m *Metrics) StoreServers(evicted map[string]int64) {
	s := m.store
	first := len(s.servers) == 0
	for id, keys := range evicted {
		before, known := s.servers[id]
		switch {
		case known:
			s.evicted.Add(float64(max(0, keys-before)))
		case !first:
			s.replaced.Inc()
			s.evicted.Add(float64(keys))
		}
		s.servers[id] = keys
	}
}

// MemoryCounters registers the gauge of counters in memory.
func (m *Metrics) MemoryCounters(count func() int) {
	m.gauge("headgate_memory_counters", "Counters in memory, if the store is memory.", func() int64 { return int64(count()) })
}

// Nodes registers the gauge of nodes that share the store.
func (m *Metrics) Nodes(nodes func() int) {
	m.gauge("headgate_nodes", "Nodes that share the store, as last reported by it.", func() int64 { return int64(nodes()) })
}

// Store registers the metrics of the layers between the limiter and the store.
func (m *Metrics) Store(stats func() storewrap.Stats) {
	m.gauge("headgate_store_calls_in_flight", "Store calls in flight that decisions wait for.",
		func() int64 { return stats().InFlight })
	m.gauge("headgate_store_shards_unavailable", "Shards of the store whose circuit is open because they do not respond.",
		func() int64 { return int64(stats().ShardsUnavailable) })
	m.counter("headgate_store_circuit_opened_total", "Circuits opened because a shard did not respond.",
		func() int64 { return stats().CircuitOpened })
	for kind, count := range map[string]func(storewrap.Errors) int64{
		"unavailable":  func(e storewrap.Errors) int64 { return e.Unavailable },
		"unanswered":   func(e storewrap.Errors) int64 { return e.Unanswered },
		"circuit_open": func(e storewrap.Errors) int64 { return e.CircuitOpen },
		"rejected":     func(e storewrap.Errors) int64 { return e.Rejected },
	} {
		m.counter("headgate_store_errors_total", "Decisions made without a response of the store, by kind: unreachable, no response "+
			"in time, circuit open, or call rejected because too many were in flight.", func() int64 { return count(stats().Errors) }, "kind", kind)
	}
	m.counter("headgate_store_unanswered_total", "Units requested from the store without a response in time.",
		func() int64 { return stats().Unanswered })
	m.counter("headgate_store_calls_rejected_total", "Store calls rejected because too many were in flight.",
		func() int64 { return stats().Rejected })
	m.gauge("headgate_local_counters_pending", "Counters with local admissions not yet charged to the store.",
		func() int64 { return int64(stats().PendingCounters) })
	m.counter("headgate_local_units_charged_total", "Units admitted locally and charged to the store afterwards.",
		func() int64 { return stats().Charged })
	m.counter("headgate_local_units_over_limit_total", "Units admitted locally that exceeded their limit when they were charged to the store.",
		func() int64 { return stats().OverLimit })
	m.counter("headgate_false_denials_total", "Upper bound of requests denied from the cache although the store would have allowed them.",
		func() int64 { return stats().FalseDenials })
	m.gauge("headgate_leases", "Leases held by this node.", func() int64 { return int64(stats().Leases) })
	m.counter("headgate_lease_units_taken_total", "Units leased from the store in advance.", func() int64 { return stats().Leased })
	m.counter("headgate_lease_units_returned_total", "Leased units returned unused.", func() int64 { return stats().Returned })
	m.counter("headgate_lease_units_lost_total", "Leased units neither used nor returned because the store did not respond.",
		func() int64 { return stats().LeaseLost })
	const evictions = "Counters evicted while in use, by location: cache (with a lease or a cached denial) or local (counted while the " +
		"store is unavailable)."
	m.counter("headgate_evictions_total", evictions, func() int64 { return stats().CacheEvicted }, "of", "cache")
	m.counter("headgate_evictions_total", evictions, func() int64 { return stats().LedgerEvicted }, "of", "local")
}
