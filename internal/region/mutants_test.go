package region

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestMutants breaks one rule of the protocol after the other, and expects the simulator to detect each.
func TestMutants(t *testing.T) {
	debit := func(c *headgate.Charge) bool { return c.Counter == simCounter && c.AtLeast == 1 }
	credit := func(c *headgate.Charge) bool { return c.Credit }
	anyTime := func(c *headgate.Charge) { c.Within = 0 }
	later := func(c *headgate.Charge) { // as a refund is checked
		if start, _ := windowOf(c, simNow()); c.Credit && c.Within < start {
			c.Within = start
		}
	}
	random := func(algorithm headgate.Algorithm) func(uint64) *scenario {
		return func(seed uint64) *scenario { return randomScenario(seed, algorithm) }
	}
	for _, m := range []struct {
		name     string
		scenario func(seed uint64) *scenario
		mutation
	}{
		{"a lender that does not charge itself, fixed window", random(headgate.FixedWindow), mutation{skip: debit}},
		{"a lender that does not charge itself, token bucket", random(headgate.TokenBucket), mutation{skip: debit}},
		{"a borrower that credits twice, fixed window", random(headgate.FixedWindow), mutation{twice: credit}},
		{"a borrower that credits twice, sliding window", random(headgate.SlidingWindow), mutation{twice: credit}},
		{"a borrower that credits twice, token bucket", random(headgate.TokenBucket), mutation{twice: credit}},
		{"credits without a window, fixed window", lateCredits(headgate.FixedWindow), mutation{charge: anyTime}},
		{"credits without a window, sliding window", lateCredits(headgate.SlidingWindow), mutation{charge: anyTime}},
		{"credits in any later window", lateCredits(headgate.FixedWindow), mutation{charge: later}},
		{"credits without a deadline", stalled, mutation{charge: anyTime}},
		{"shares without a reserve", inFlight, mutation{reserve: true}},
		{"stores that lose data unnoticed, fixed window", losses(headgate.FixedWindow), mutation{silent: true}},
		{"stores that lose data unnoticed, sliding window", losses(headgate.SlidingWindow), mutation{silent: true}},
		{"stores that lose data unnoticed, token bucket", losses(headgate.TokenBucket), mutation{silent: true}},
		{"regions that use the whole limit", random(headgate.FixedWindow), mutation{whole: true}},
	} {
		t.Run(m.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 100; seed++ {
				s := m.scenario(seed)
				s.mutate = m.mutation
				if o := s.run(t); o.over > 1 {
					t.Logf("seed %d: %.3f of the limit were granted", seed, o.over)
					return
				}
			}
			t.Error("not detected")
		})
	}
}

// lateCredits returns scenarios in which many credits arrive in the next window: in every other window one region borrows from the
// others, and in the windows between them all regions use up the limit. Stores stall.
func lateCredits(algorithm headgate.Algorithm) func(seed uint64) *scenario {
	return func(seed uint64) *scenario {
		return &scenario{
			seed: seed, limit: headgate.Limit{Algorithm: algorithm, Align: headgate.OnClock, Count: 300, Window: 2 * time.Second},
			weights: []int64{1, 1, 1}, nodes: 1, length: 30 * time.Second, oneWay: wan, stall: 0.1, stallCredits: 0.5,
			load: func(at time.Duration) []float64 {
				if at%(4*time.Second) < 2*time.Second {
					return []float64{450, 0, 0}
				}
				return []float64{450, 450, 450}
			},
		}
	}
}

// inFlight returns a scenario in which as many units as possible are on their way when all regions are used at once: one region borrows a
// little all the time, so that the others refill, until a burst in every region.
func inFlight(seed uint64) *scenario {
	const oneWay = 180 * time.Millisecond
	return &scenario{
		seed: seed, limit: headgate.Limit{Count: 100, Window: time.Second, Burst: 60}, weights: []int64{1, 1, 1}, nodes: 1,
		length: time.Minute, oneWay: [][]time.Duration{{0, oneWay, oneWay}, {oneWay, 0, oneWay}, {oneWay, oneWay, 0}},
		load: bursts(45, 5*time.Second, 300*time.Millisecond),
	}
}

// stalled returns a scenario as inFlight does, with a larger bucket, and with credits that stall for up to eight seconds.
func stalled(seed uint64) *scenario {
	s := inFlight(seed)
	s.limit.Burst, s.load, s.stallCredits, s.stallFor = 300, bursts(150, 20*time.Second, 2*time.Second), 1, 8*time.Second
	return s
}

// losses returns scenarios in which stores lose their data every few seconds, while one region borrows.
func losses(algorithm headgate.Algorithm) func(seed uint64) *scenario {
	return func(seed uint64) *scenario {
		s := randomScenario(seed, algorithm)
		s.limit = headgate.Limit{Algorithm: algorithm, Count: 1000, Window: 10 * time.Second}
		s.loss, s.duplication, s.stall, s.kill, s.cut, s.cost, s.skew = 0, 0, 0, 0, nil, nil, nil
		s.loseEvery = 7 * time.Second
		load := make([]float64, len(s.weights))
		for i := range load {
			load[i] = 20
		}
		load[0] = 300
		s.load = func(time.Duration) []float64 { return load }
		return s
	}
}

// bursts returns a load in one region, with a burst in all regions every so often.
func bursts(rate float64, every, length time.Duration) load {
	return func(at time.Duration) []float64 {
		if at%every < every-length {
			return []float64{rate, 0, 0}
		}
		return []float64{2000, 2000, 2000}
	}
}

// TestNoMutant runs the scenarios of TestMutants without a mutation.
func TestNoMutant(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		for _, next := range []func(uint64) *scenario{
			lateCredits(headgate.FixedWindow), lateCredits(headgate.SlidingWindow), inFlight, stalled,
			losses(headgate.FixedWindow), losses(headgate.SlidingWindow), losses(headgate.TokenBucket),
		} {
			s := next(seed)
			if o := s.run(t); o.over > 1 || o.lent == 0 {
				t.Errorf("%s, seed %d: %.4f of the limit were granted, %d units lent", s.limit, seed, o.over, o.lent)
			}
		}
	}
}
