package headgate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

type rate struct {
	name  string
	limit headgate.Limit
}

// rates are those at which a limiter that rounds fails: very slow, very fast, or with intervals that are not whole microseconds.
var rates = []rate{
	{"7 per minute", headgate.PerMinute(7)},
	{"9,999 per second", headgate.PerSecond(9_999)},
	{"1,500,000 per second", headgate.PerSecond(1_500_000)},
	{"1,000,000 per day", headgate.PerDay(1_000_000)},
	{"1 per 30 days", headgate.Per(1, 30*24*time.Hour)},
	{"1e9 per second", headgate.PerSecond(1_000_000_000)},
	{"999,999,937 per hour", headgate.PerHour(999_999_937)},
}

// greedy are clients that take everything they can get. Each step waits, but never so long that the bucket is full and refill is
// lost, and then takes until nothing is left.
var greedy = []struct {
	name string
	step func(m *meter, rng *rand.Rand) (allowed int64)
}{
	{"as soon as a unit fits", func(m *meter, _ *rand.Rand) int64 {
		m.wait(m.preview(headgate.Charge{Cost: 1}, 0).RetryAfter)
		return takeSingles(m)
	}},
	{"now and then", func(m *meter, rng *rand.Rand) int64 {
		m.wait(m.preview(headgate.Charge{Cost: 1}, 0).RetryAfter)
		spare := (capacity(m.limit) - 1) * m.limit.Window.Microseconds() / m.limit.Count
		m.now += rng.Int64N(min(spare, 100_000) + 1)
		return m.takeAll().Granted
	}},
	{"every microsecond", func(m *meter, _ *rand.Rand) int64 {
		m.now++
		return m.takeAll().Granted
	}},
}

// takeSingles takes unit by unit. If many fit at once, it takes most of them in one charge.
func takeSingles(m *meter) (allowed int64) {
	if remaining := m.preview(headgate.Charge{}, 0).Remaining; remaining > 10 {
		allowed = m.take(headgate.Charge{Cost: remaining - 5}).Granted
	}
	for m.take(headgate.Charge{Cost: 1}).Allowed {
		allowed++
	}
	return allowed
}

// TestRateHolds checks that a greedy client is allowed exactly the rate, to a millionth, and never a unit before it is due.
func TestRateHolds(t *testing.T) {
	t.Parallel()
	const steps, seed = 10_000, 1
	for _, rate := range rates {
		for _, client := range greedy {
			t.Run(rate.name+" "+client.name, func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 0))
				m := &meter{limit: rate.limit, now: 1_700_000_000_123_456}
				if got := m.takeAll().Granted; got != rate.limit.Count {
					t.Fatalf("a new bucket allowed %d, want %d", got, rate.limit.Count)
				}
				start, allowed := m.now, int64(0)
				for i := range steps {
					if m.now > lastTime {
						break
					}
					allowed += client.step(m, rng)
					want := due(rate.limit, m.now-start)
					if allowed*millionth > want {
						t.Fatalf("seed %d, step %d: allowed %d units after %d µs, due are %d millionths", seed, i, allowed, m.now-start, want)
					}
					if (allowed+1)*millionth <= want-want/1_000_000-1 {
						t.Fatalf("seed %d, step %d: allowed only %d units after %d µs, due are %d millionths", seed, i, allowed, m.now-start, want)
					}
				}
				if allowed < 500 && client.name != "every microsecond" {
					t.Errorf("allowed %d units in %d steps: too few to be meaningful", allowed, steps)
				}
			})
		}
	}
}

// TestMonthlyQuotaHolds checks that every month has its whole quota, regardless of its length and of when it is used.
func TestMonthlyQuotaHolds(t *testing.T) {
	t.Parallel()
	const quota, months, seed = 1_000_000_000, 12 * 12, 1
	rng := rand.New(rand.NewPCG(seed, 0))
	berlin := zone(t, "Europe/Berlin")
	m := &meter{limit: headgate.Quota(quota, headgate.Month, berlin)}
	allowed := map[string]int64{}
	start, end := time.Date(2024, 1, 1, 0, 0, 0, 0, berlin), time.Date(2024, 1+months, 1, 0, 0, 0, 0, berlin)
	for now := start; now.Before(end); now = now.Add(time.Duration(rng.Int64N(int64(18 * time.Hour)))) {
		m.now = now.UnixMicro()
		allowed[now.Format("2006-01")] += m.take(headgate.Charge{Cost: 1 + rng.Int64N(50_000_000), AtLeast: 1}).Granted
	}
	if len(allowed) != months {
		t.Errorf("seed %d: %d months were charged, want %d", seed, len(allowed), months)
	}
	for month, got := range allowed {
		if got != quota {
			t.Errorf("seed %d: %s allowed %d, want %d", seed, month, got, quota)
		}
	}
}

// TestRefundedChargesLoseAMillionthEach measures the loss by rounding. Every write may lose less than a millionth of a unit. An allowed
// unit hides that; a charge that is refunded at once does not: a client that does only this, every microsecond, can lose up to half
// of the refill at a rate just below two units per second, and almost nothing at higher rates.
func TestRefundedChargesLoseAMillionthEach(t *testing.T) {
	t.Parallel()
	const steps, seed = 20_000, 1
	worst := headgate.Per(1_999, 1_000*time.Second)
	for _, rate := range append([]rate{{"1,999 per 1000 s", worst}}, rates...) {
		for _, span := range []int64{1, 1_000} {
			rng := rand.New(rand.NewPCG(seed, uint64(span)))
			m := &meter{limit: rate.limit, now: 1_700_000_000_123_456}
			m.limit.Burst = max(2, rate.limit.Count)
			m.take(headgate.Charge{Cost: m.limit.Burst - 1})
			start, full := m.now, m.state.Used
			for i := range steps {
				if m.preview(headgate.Charge{}, time.Millisecond).ResetAfter == 0 {
					break
				}
				m.now += 1 + rng.Int64N(span)
				charged := m.take(headgate.Charge{Cost: 1})
				back := m.take(headgate.Charge{Cost: 1, Refund: charged.Receipt})
				if charged.Granted != 1 || back.Granted != 1 {
					t.Fatalf("%s, seed %d, step %d: charged %d, gave back %d", rate.name, seed, i, charged.Granted, back.Granted)
				}
				lost := due(m.limit, m.now-start) - (full - m.state.Used)
				if lost < 0 || lost > int64(i)+1 {
					t.Fatalf("%s, seed %d: %d refunded charges lost %d millionths of a unit", rate.name, seed, i+1, lost)
				}
			}
			refill := due(m.limit, m.now-start)
			lost := refill - (full - m.state.Used)
			if lost > refill/2+1 {
				t.Errorf("%s, seed %d: lost %d of %d millionths", rate.name, seed, lost, refill)
			}
			if rate.limit == worst && span == 1 && lost < refill*49/100 {
				t.Errorf("%s: a restless client lost only %d of %d millionths: update the comment of this test", rate.name, lost, refill)
			}
		}
	}
}
