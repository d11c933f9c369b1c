package region

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestPartition cuts all regions off from each other for 40 seconds. Each keeps using its share, and borrows again soon after.
func TestPartition(t *testing.T) {
	const from, to = 20 * time.Second, time.Minute
	limits := []headgate.Limit{
		{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 1000, Window: 10 * time.Second},
		headgate.Per(6000, time.Minute),
	}
	for _, l := range limits {
		for seed := uint64(1); seed <= 3; seed++ {
			s := scenario{seed: seed, limit: l, weights: []int64{2, 1, 1}, nodes: 2, length: 90 * time.Second, oneWay: wan}
			s.cut = func(_, _ int, at time.Duration) bool { return at >= from && at < to }
			s.load = func(at time.Duration) []float64 {
				rate := float64(l.Count) / l.Window.Seconds()
				if at < to { // all want more than their share
					return []float64{rate, rate, rate}
				}
				return []float64{0, 0.9 * rate, 0}
			}
			o := s.run(t)
			if o.over > 1 {
				t.Errorf("%s, seed %d: %.4f of the limit were granted", l, seed, o.over)
			}
			// From 30 s on, what was lent before the cut is in the past.
			var granted [3]int64
			for _, g := range o.grants {
				if g.at >= 30*time.Second && g.at < to {
					granted[g.region] += g.granted
				}
			}
			for i, weight := range s.weights {
				share := float64(l.Count) * 30 / l.Window.Seconds() * float64(weight) / 4
				if float64(granted[i]) < 0.99*share {
					t.Errorf("%s, seed %d: region %d used %d of its share of %.0f while it was cut off", l, seed, i, granted[i], share)
				}
			}
			healed := false
			for _, at := range o.loans {
				if at > from+inTransit && at < to {
					t.Errorf("%s, seed %d: units arrived at %s, while regions were cut off", l, seed, at)
				}
				healed = healed || at >= to && at < to+3*time.Second
			}
			if !healed {
				t.Errorf("%s, seed %d: nothing was lent within 3 s after the cut: %v", l, seed, o.loans)
			}
		}
	}
}

// inTransit is how long a loan that was requested before a cut may be on its way.
const inTransit = time.Second

// TestMove moves all requests from one region to another, and expects that soon as many are allowed as one counter would allow.
func TestMove(t *testing.T) {
	for _, l := range []headgate.Limit{
		{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 6000, Window: time.Minute},
		{Algorithm: headgate.SlidingWindow, Align: headgate.OnClock, Count: 6000, Window: time.Minute},
		{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 1000, Window: 10 * time.Second},
		headgate.Per(6000, time.Minute),
	} {
		var granted, ideal int64
		for seed := uint64(1); seed <= 3; seed++ {
			// They move in the middle of a window, when the first region has borrowed most units.
			const move = 95 * time.Second
			s := scenario{seed: seed, limit: l, weights: []int64{1, 1, 1}, nodes: 2, length: 115 * time.Second, oneWay: wan}
			s.load = func(at time.Duration) []float64 {
				rate := 0.95 * float64(l.Count) / l.Window.Seconds()
				if at < move {
					return []float64{rate, 0, 0}
				}
				return []float64{0, 0, rate}
			}
			for _, g := range s.run(t).grants {
				if g.at >= move+2*time.Second {
					granted, ideal = granted+g.granted, ideal+g.ideal
				}
			}
		}
		used := float64(granted) / float64(ideal)
		t.Logf("%s: %.4f of the ideal from 2 s after the move", l, used)
		if used < 0.98 {
			t.Errorf("%s: %.4f of the ideal from 2 s after the move, want at least 0.98", l, used)
		}
	}
}

// TestFewMessages counts loan requests per request at 1000 per minute, for clients that use from a tenth of their limit to twice as much.
func TestFewMessages(t *testing.T) {
	l := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Window: time.Minute}
	var sent, requests int64
	for _, of := range []float64{0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 2} {
		s := scenario{seed: 1, limit: l, weights: []int64{1, 1, 1}, nodes: 2, length: 10 * time.Minute, oneWay: wan, load: spread(of, 0.9, 0.09, 0.01)(l)}
		o := s.run(t)
		sent, requests = sent+o.loanRequests, requests+o.requests
		t.Logf("%.1f L: %.4f loan requests per request", of, float64(o.loanRequests)/float64(o.requests))
	}
	if perRequest := float64(sent) / float64(requests); perRequest > 0.02 {
		t.Errorf("%.4f loan requests per request, want at most 0.02", perRequest)
	}
}
