package telemetry

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/regiongrpc"
)

func TestRegions(t *testing.T) {
	t.Parallel()
	m := New("v1.2.3")
	m.Regions(func() region.Stats {
		return region.Stats{
			Requests: 10, Unanswered: 3, Skipped: 2, Borrowed: 500, Lent: 70, Lost: 5,
			DeniedWithSpare: 6, DeniedUsedUp: 8, DeniedUnknown: 9,
			Rejected: map[string]int64{"no_units": 4, "borrowing": 0},
		}
	}, func() []regiongrpc.State {
		return []regiongrpc.State{
			{Peer: "ap"}, // never responded
			{Peer: "us", Up: true, OtherMembers: true, RTT: 250 * time.Millisecond, LastContact: time.UnixMilli(1_700_000_000_500)},
		}
	})
	for name, want := range map[string]string{
		"headgate_region_requests_total": `
# HELP headgate_region_requests_total Requests for units of other regions, by result: answered, unanswered (no response in time), or skipped (not sent, because too many were in flight).
# TYPE headgate_region_requests_total counter
headgate_region_requests_total{result="answered"} 7
headgate_region_requests_total{result="skipped"} 2
headgate_region_requests_total{result="unanswered"} 3
`,
		"headgate_region_units_total": `
# HELP headgate_region_units_total Units lent to and borrowed from other regions; lost units were lent but could not be credited.
# TYPE headgate_region_units_total counter
headgate_region_units_total{direction="borrowed"} 500
headgate_region_units_total{direction="lent"} 70
headgate_region_units_total{direction="lost"} 5
`,
		"headgate_region_rejections_total": `
# HELP headgate_region_rejections_total Requests of other regions for units to which nothing was lent, by reason.
# TYPE headgate_region_rejections_total counter
headgate_region_rejections_total{reason="borrowing"} 0
headgate_region_rejections_total{reason="no_units"} 4
`,
		"headgate_region_denials_total": `
# HELP headgate_region_denials_total Denials of shared limits by the store of this region, by whether other regions may have had units left: spare (by their last response, or they have not responded), used_up, or unknown.
# TYPE headgate_region_denials_total counter
headgate_region_denials_total{others="spare"} 6
headgate_region_denials_total{others="unknown"} 9
headgate_region_denials_total{others="used_up"} 8
`,
		"headgate_region_peer_members_differ": `
# HELP headgate_region_peer_members_differ Whether another region had other members or weights when it last responded.
# TYPE headgate_region_peer_members_differ gauge
headgate_region_peer_members_differ{peer="ap"} 0
headgate_region_peer_members_differ{peer="us"} 1
`,
		"headgate_region_peer_up": `
# HELP headgate_region_peer_up Whether another region responds.
# TYPE headgate_region_peer_up gauge
headgate_region_peer_up{peer="ap"} 0
headgate_region_peer_up{peer="us"} 1
`,
		"headgate_region_peer_rtt_seconds": `
# HELP headgate_region_peer_rtt_seconds Usual round trip to another region.
# TYPE headgate_region_peer_rtt_seconds gauge
headgate_region_peer_rtt_seconds{peer="us"} 0.25
`,
		"headgate_region_peer_last_contact_timestamp_seconds": `
# HELP headgate_region_peer_last_contact_timestamp_seconds Time at which another region last responded; missing if it never has.
# TYPE headgate_region_peer_last_contact_timestamp_seconds gauge
headgate_region_peer_last_contact_timestamp_seconds{peer="us"} 1.7000000005e+09
`,
	} {
		expect(t, m, name, want)
	}
}
