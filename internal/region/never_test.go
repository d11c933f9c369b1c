package region

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// scenarios returns how many random scenarios to run: HEADGATE_SCENARIOS, or a few.
func scenarios(t *testing.T) int {
	text := os.Getenv("HEADGATE_SCENARIOS")
	if text == "" {
		return 30
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("HEADGATE_SCENARIOS: %v", err)
	}
	return n
}

// TestNeverExceeded runs random scenarios, and expects that regions together never grant more than the limit.
func TestNeverExceeded(t *testing.T) {
	for _, algorithm := range []headgate.Algorithm{headgate.FixedWindow, headgate.SlidingWindow, headgate.TokenBucket} {
		t.Run(algorithm.String(), func(t *testing.T) {
			first := rand.Uint64()
			worst, used, lent := 0.0, 0.0, int64(0)
			n := scenarios(t)
			for i := range n {
				s := randomScenario(first+uint64(i), algorithm)
				o := s.run(t)
				worst, used, lent = max(worst, o.over), used+o.used/float64(n), lent+o.lent
				if o.over > 1 {
					t.Errorf("seed %d, %s in %d regions: %.4f of the limit were granted", s.seed, s.limit, len(s.weights), o.over)
				}
			}
			if lent == 0 {
				t.Error("nothing was lent")
			}
			t.Logf("%d scenarios from seed %d: at most %.4f of the limit, %.3f used on average, %d units lent", n, first, worst, used, lent)
		})
	}
}

// randomScenario returns a scenario with anything that can go wrong.
func randomScenario(seed uint64, algorithm headgate.Algorithm) *scenario {
	r := rand.New(rand.NewPCG(seed, 99))
	s := &scenario{
		seed: seed, nodes: 1 + r.IntN(3), length: 30 * time.Second,
		loss: r.Float64() * 0.4, duplication: r.Float64() * 0.4, stall: r.Float64() * 0.2, kill: r.Float64() * 0.1,
		limit: headgate.Limit{
			Algorithm: algorithm, Count: int64(30 + r.IntN(3_000)),
			Window: time.Duration(1+r.IntN(20)) * time.Second,
		},
	}
	if algorithm == headgate.TokenBucket {
		s.limit.Burst = s.limit.Count * int64(1+r.IntN(3)) / int64(1+r.IntN(3))
	}
	regions := 2 + r.IntN(4)
	for range regions {
		s.weights = append(s.weights, int64(1+r.IntN(4)))
		s.skew = append(s.skew, time.Duration((r.Float64()*2-1)*30*float64(time.Second)*float64(r.IntN(2))))
		row := make([]time.Duration, regions)
		for j := range row {
			row[j] = time.Duration(1+r.IntN(200)) * time.Millisecond
		}
		s.oneWay = append(s.oneWay, row)
	}
	rate := float64(s.limit.Count) / s.limit.Window.Seconds()
	if algorithm == headgate.TokenBucket {
		rate = max(rate, float64(s.limit.Burst)/10) // so that the burst is used up
	}
	rate = min(rate, 400)
	phase := time.Duration(1+r.IntN(10)) * time.Second
	loads := make([][]float64, 8)
	for i := range loads {
		loads[i] = make([]float64, regions)
		for j := range regions {
			if r.IntN(2) == 0 {
				loads[i][j] = rate * r.ExpFloat64()
			}
		}
	}
	s.load = func(at time.Duration) []float64 { return loads[int(at/phase)%len(loads)] }
	if r.IntN(2) == 0 {
		s.cost = func(r *rand.Rand) int64 { return 1 + int64(r.IntN(5)) }
	}
	if r.IntN(2) == 0 {
		from, span, region := time.Duration(r.IntN(20))*time.Second, time.Duration(r.IntN(10))*time.Second, r.IntN(regions)
		s.cut = func(a, b int, at time.Duration) bool {
			return (a == region || b == region) && at >= from && at < from+span
		}
	}
	return s
}
