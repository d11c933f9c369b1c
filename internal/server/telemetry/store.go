package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/storewrap"
)

// store are the metrics of where counters are.
type store struct {
	up       prometheus.Gauge
	duration *histogram
	replaced prometheus.Counter
	evicted  prometheus.Counter
	servers  map[string]int64 // keys that each has evicted
}

func newStore(registry *prometheus.Registry) *store {
	s := &store{
		up:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "headgate_store_up", Help: "1 if the store answers."}),
		duration: newDuration("headgate_store_call_duration_seconds", "How long calls to the store took that a decision waited for."),
		replaced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_store_replaced_total", Help: "Times that a primary of the store was seen to be another, or restarted.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_store_evicted_keys_total", Help: "Keys that the primaries of the store were seen to evict: counters that are lost.",
		}),
		servers: map[string]int64{},
	}
	registry.MustRegister(s.up, s.duration, s.replaced, s.evicted)
	return s
}

// StoreUp notes whether the store answers.
func (m *Metrics) StoreUp(up bool) {
	value := 0.
	if up {
		value = 1
	}
	m.store.up.Set(value)
}

// StoreCall notes how long a call to the store took.
func (m *Metrics) StoreCall(took time.Duration) { m.store.duration.Observe(took) }

// StoreServers notes how many keys each primary has evicted since its start, by an id that changes with that. Not all of them
// need be there every time. It is not called twice at a time.
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

// Nodes shows how many count on the same store.
func (m *Metrics) Nodes(nodes func() int) {
	m.number("headgate_nodes", "Nodes that count on the same store, as that said last.", func() int64 { return int64(nodes()) })
}

// Store shows what stands between the limiter and the store.
func (m *Metrics) Store(stats func() storewrap.Stats) {
	m.number("headgate_store_calls_in_flight", "Store calls under way that decisions wait for.",
		func() int64 { return stats().InFlight })
	m.number("headgate_store_shards_unavailable", "Shards of the store whose circuit is open because they do not answer.",
		func() int64 { return int64(stats().ShardsUnavailable) })
	m.total("headgate_store_circuit_opened_total", "Times that the circuit of a shard opened because it did not answer.",
		func() int64 { return stats().CircuitOpened })
	for kind, count := range map[string]func(storewrap.Errors) int64{
		"unavailable":  func(e storewrap.Errors) int64 { return e.Unavailable },
		"unanswered":   func(e storewrap.Errors) int64 { return e.Unanswered },
		"circuit_open": func(e storewrap.Errors) int64 { return e.CircuitOpen },
		"rejected":     func(e storewrap.Errors) int64 { return e.Rejected },
	} {
		m.total("headgate_store_errors_total", "Decisions that the store did not answer, by reason: it could not be reached, did not "+
			"answer in time, has an open circuit, or too many calls were under way.", func() int64 { return count(stats().Errors) }, "kind", kind)
	}
	m.total("headgate_store_unanswered_total", "Units that the store was asked for and did not answer in time.",
		func() int64 { return stats().Unanswered })
	m.total("headgate_store_calls_rejected_total", "Store calls that were not made because too many were under way.",
		func() int64 { return stats().Rejected })
	m.number("headgate_local_counters_pending", "Counters with local admissions that the store is yet to be charged.",
		func() int64 { return int64(stats().PendingCounters) })
	m.total("headgate_local_units_charged_total", "Units admitted locally that the store was charged afterwards.",
		func() int64 { return stats().Charged })
	m.total("headgate_local_units_over_limit_total", "Units admitted locally that their limit had no room for when the store was charged.",
		func() int64 { return stats().OverLimit })
	m.total("headgate_false_denials_total", "Upper bound of requests denied from the cache though the store had room again.",
		func() int64 { return stats().FalseDenials })
	m.number("headgate_leases", "Leases of units that are out.", func() int64 { return int64(stats().Leases) })
	m.total("headgate_lease_units_taken_total", "Units leased from the store in advance.", func() int64 { return stats().Leased })
	m.total("headgate_lease_units_returned_total", "Leased units that were returned unspent.", func() int64 { return stats().Returned })
	m.total("headgate_lease_units_lost_total", "Leased units that were neither spent nor returned, since the store did not answer.",
		func() int64 { return stats().LeaseLost })
	const evictions = "Counters that were of use and had to make room for others: in the cache, with a lease or a cached denial, and " +
		"local ones, counted while the store is unavailable."
	m.total("headgate_evictions_total", evictions, func() int64 { return stats().CacheEvicted }, "of", "cache")
	m.total("headgate_evictions_total", evictions, func() int64 { return stats().LedgerEvicted }, "of", "local")
}
