package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/regiongrpc"
	"github.com/headgate/headgate/storewrap"
)

// Regions registers the metrics of limits that regions share.
func (m *Metrics) Regions(stats func() region.Stats, peers func() []regiongrpc.State) {
	m.registry.MustRegister(regions{stats, peers})
}

// Homes registers the metrics of regions as homes of subjects.
func (m *Metrics) Homes(stats func() map[string]storewrap.Stats) {
	m.registry.MustRegister(homes{stats})
}

// homes is a collector that reads the state on collection.
type homes struct {
	stats func() map[string]storewrap.Stats
}

var (
	homeUp = prometheus.NewDesc("headgate_region_home_up",
		"Whether another region decides requests whose subjects have their home there; if not, on_store_failure does.", []string{"peer"}, nil)
	homeErrors = prometheus.NewDesc("headgate_region_home_errors_total",
		"Requests that another region, the home of their subjects, did not decide, by reason.", []string{"peer", "reason"}, nil)
	homePending = prometheus.NewDesc("headgate_region_home_pending_counters",
		"Counters with units that this node admitted while their home was unavailable, and that it has not been charged with yet.", []string{"peer"}, nil)
)

// Describe implements [prometheus.Collector].
func (homes) Describe(all chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{homeUp, homeErrors, homePending} {
		all <- desc
	}
}

// Collect implements [prometheus.Collector].
func (h homes) Collect(all chan<- prometheus.Metric) {
	for peer, stats := range h.stats() {
		up := 1.
		if stats.ShardsUnavailable > 0 {
			up = 0
		}
		all <- prometheus.MustNewConstMetric(homeUp, prometheus.GaugeValue, up, peer)
		all <- prometheus.MustNewConstMetric(homePending, prometheus.GaugeValue, float64(stats.PendingCounters), peer)
		for reason, n := range map[string]int64{
			"unavailable": stats.Errors.Unavailable, "unanswered": stats.Errors.Unanswered, "circuit_open": stats.Errors.CircuitOpen, "rejected": stats.Errors.Rejected,
		} {
			all <- prometheus.MustNewConstMetric(homeErrors, prometheus.CounterValue, float64(n), peer, reason)
		}
	}
}

// regions is a collector that reads the state on collection.
type regions struct {
	stats func() region.Stats
	peers func() []regiongrpc.State
}

var (
	regionRequests = prometheus.NewDesc("headgate_region_requests_total",
		"Requests for units of other regions, by result: answered, unanswered (no response in time), or skipped (not sent, because too many were in flight).",
		[]string{"result"}, nil)
	regionUnits = prometheus.NewDesc("headgate_region_units_total",
		"Units lent to and borrowed from other regions; lost units were lent but could not be credited.", []string{"direction"}, nil)
	regionRejections = prometheus.NewDesc("headgate_region_rejections_total",
		"Requests of other regions for units to which nothing was lent, by reason.", []string{"reason"}, nil)
	regionDenials = prometheus.NewDesc("headgate_region_denials_total",
		"Denials of shared limits by the store of this region, by whether other regions may have had units left: spare (by their last response, or "+
			"they have not responded), used_up, or unknown.", []string{"others"}, nil)
	peerUp      = prometheus.NewDesc("headgate_region_peer_up", "Whether another region responds.", []string{"peer"}, nil)
	peerRTT     = prometheus.NewDesc("headgate_region_peer_rtt_seconds", "Usual round trip to another region.", []string{"peer"}, nil)
	peerContact = prometheus.NewDesc("headgate_region_peer_last_contact_timestamp_seconds",
		"Time at which another region last responded; missing if it never has.", []string{"peer"}, nil)
	peerDiffers = prometheus.NewDesc("headgate_region_peer_members_differ",
		"Whether another region had other members or weights when it last responded.", []string{"peer"}, nil)
)

// Describe implements [prometheus.Collector].
func (regions) Describe(all chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{regionRequests, regionUnits, regionRejections, regionDenials, peerUp, peerRTT, peerContact, peerDiffers} {
		all <- desc
	}
}

// Collect implements [prometheus.Collector].
func (r regions) Collect(all chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, n int64, label string) {
		all <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), label)
	}
	gauge := func(desc *prometheus.Desc, v float64, peer string) {
		all <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, peer)
	}
	stats := r.stats()
	counter(regionRequests, stats.Requests-stats.Unanswered, "answered")
	counter(regionRequests, stats.Unanswered, "unanswered")
	counter(regionRequests, stats.Skipped, "skipped")
	counter(regionUnits, stats.Lent, "lent")
	counter(regionUnits, stats.Borrowed, "borrowed")
	counter(regionUnits, stats.Lost, "lost")
	for reason, n := range stats.Rejected {
		counter(regionRejections, n, reason)
	}
	counter(regionDenials, stats.DeniedWithSpare, "spare")
	counter(regionDenials, stats.DeniedUsedUp, "used_up")
	counter(regionDenials, stats.DeniedUnknown, "unknown")
	for _, p := range r.peers() {
		gauge(peerUp, number(p.Up), p.Peer)
		gauge(peerDiffers, number(p.OtherMembers), p.Peer)
		if p.LastContact.IsZero() {
			continue
		}
		gauge(peerRTT, p.RTT.Seconds(), p.Peer)
		gauge(peerContact, float64(p.LastContact.UnixMilli())/1000, p.Peer)
	}
}

// number returns 1 for true.
func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
