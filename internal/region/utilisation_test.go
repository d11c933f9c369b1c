package region

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// wan is the one way between the three regions of the examples.
var wan = [][]time.Duration{
	{0, 40 * time.Millisecond, 110 * time.Millisecond},
	{40 * time.Millisecond, 0, 75 * time.Millisecond},
	{110 * time.Millisecond, 75 * time.Millisecond, 0},
}

// load is the requests per second in each region at a time.
type load = func(at time.Duration) []float64

// spread returns a constant load: a multiple of a limit's rate, divided among regions.
func spread(of float64, parts ...float64) func(headgate.Limit) load {
	return func(l headgate.Limit) load {
		rates := make([]float64, len(parts))
		for i, p := range parts {
			rates[i] = of * p * float64(l.Count) / l.Window.Seconds()
		}
		return func(time.Duration) []float64 { return rates }
	}
}

// moving returns a load that moves to the next of three regions every so often.
func moving(of float64, every time.Duration) func(headgate.Limit) load {
	return func(l headgate.Limit) load {
		return func(at time.Duration) []float64 {
			rates := make([]float64, 3)
			rates[int(at/every)%3] = of * float64(l.Count) / l.Window.Seconds()
			return rates
		}
	}
}

// TestUtilisation judges how much of a limit is used, compared with one counter for all regions, and how many requests are denied that
// one counter would allow.
func TestUtilisation(t *testing.T) {
	limits := []struct {
		limit              headgate.Limit
		used, falseDenials float64 // minimum; maximum below 0.9 of the limit
	}{
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 6000, Window: time.Minute}, 0.98, 0.001},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Window: 10 * time.Second}, 0.98, 0.003},
		{headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 6000, Window: time.Minute}, 0.98, 0.001},
		{headgate.Per(6000, time.Minute), 0.98, 0.001},
		{headgate.Per(100, time.Second), 0.94, 1},
	}
	for _, w := range []struct {
		name  string
		below bool // the load is below 0.9 of the limit
		load  func(headgate.Limit) load
	}{
		{"all in one region, 0.97 L", false, spread(0.97, 1, 0, 0)},
		{"90/9/1, 0.97 L", false, spread(0.97, 0.9, 0.09, 0.01)},
		{"90/9/1, 0.89 L", true, spread(0.89, 0.9, 0.09, 0.01)},
		{"moves every 20 s, 0.95 L", false, moving(0.95, 20*time.Second)},
		{"moves every 20 s, 0.89 L", true, moving(0.89, 20*time.Second)},
		{"70/20/10, 1.2 L", false, spread(1.2, 0.7, 0.2, 0.1)},
	} {
		for _, l := range limits {
			// Several seeds, because the rates of a run are random.
			var used, denials, requested float64
			const seeds = 3
			for seed := range uint64(seeds) {
				s := scenario{seed: seed + 1, limit: l.limit, weights: []int64{1, 1, 1}, nodes: 2, length: 2 * time.Minute, load: w.load(l.limit), oneWay: wan}
				o := s.run(t)
				if o.over > 1 {
					t.Errorf("%s, %s, seed %d: %.4f of the limit were granted", w.name, l.limit, s.seed, o.over)
				}
				used, denials, requested = used+o.used/seeds, denials+o.falseDenials/seeds, requested+float64(o.loanRequests)/float64(o.requests)/seeds
			}
			t.Logf("%-26s %-28s used %.4f, false denials %.3f %%, loan requests per request %.4f", w.name, l.limit, used, 100*denials, requested)
			if used < l.used {
				t.Errorf("%s, %s: used %.4f of what one counter allows, want at least %.2f", w.name, l.limit, used, l.used)
			}
			if w.below && denials > l.falseDenials {
				t.Errorf("%s, %s: %.3f %% false denials, want at most %.1f %%", w.name, l.limit, 100*denials, 100*l.falseDenials)
			}
		}
	}
}

// TestWithoutLending shows what lending is worth: how much of a limit is used if each region has its share only.
func TestWithoutLending(t *testing.T) {
	for _, l := range []headgate.Limit{
		{Algorithm: headgate.FixedWindow, Count: 6000, Window: time.Minute},
		{Algorithm: headgate.FixedWindow, Count: 1000, Window: 10 * time.Second},
		{Algorithm: headgate.SlidingWindow, Count: 6000, Window: time.Minute},
		headgate.Per(6000, time.Minute), headgate.Per(100, time.Second),
	} {
		s := scenario{
			seed: 1, limit: l, weights: []int64{1, 1, 1}, nodes: 2, length: 4 * time.Minute, oneWay: wan,
			load: spread(0.97, 0.9, 0.09, 0.01)(l), noBorrowing: true,
		}
		o := s.run(t)
		t.Logf("%-28s used %.4f", l, o.used)
		if o.used > 0.75 || o.lent > 0 {
			t.Errorf("%s: used %.4f, and %d units were lent", l, o.used, o.lent)
		}
	}
}
