package headgate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestSince counts charges separately and records them later. The result equals recording them at once, exactly for a window and up to
// one unit for a bucket.
func TestSince(t *testing.T) {
	t.Parallel()
	start := time.Unix(2_000_000_000, 0)
	for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
		for _, align := range []headgate.Align{headgate.FromFirst, headgate.OnClockSpread} {
			if align != headgate.FromFirst && a != headgate.FixedWindow && a != headgate.SlidingWindow {
				continue
			}
			c := headgate.Charge{
				Subject: headgate.SubjectOf("since"), Limit: headgate.Limit{Algorithm: a, Count: 1_000, Window: time.Minute, Align: align},
			}
			for seed := range uint64(200) {
				since(t, c, start, rand.New(rand.NewPCG(seed, 1)))
			}
		}
	}
}

func since(t *testing.T, c headgate.Charge, start time.Time, random *rand.Rand) {
	t.Helper()
	var all, there, here headgate.State
	force := func(s headgate.State, units int64, at time.Time) headgate.State {
		c := c
		c.Cost, c.Force = units, true
		s, _ = c.Limit.Take(s, c, at)
		return s
	}
	now := start
	all, there = force(all, 100, now), force(there, 100, now)
	here = there
	for range random.IntN(20) {
		now = now.Add(time.Duration(random.Int64N(int64(6 * time.Second))))
		units := 1 + random.Int64N(20)
		all, here = force(all, units, now), force(here, units, now)
	}
	now = now.Add(time.Duration(random.Int64N(int64(20 * time.Second))))
	got := there
	for _, owed := range c.Since(there, here, now) {
		if owed.Age < 0 || !owed.Force || owed.Subject != c.Subject {
			t.Fatalf("%+v", owed)
		}
		got, _ = c.Limit.Take(got, owed, now)
	}
	for range 10 {
		peek := c
		peek.MaxDelay = time.Hour
		_, want := c.Limit.Take(all, peek, now)
		_, is := c.Limit.Take(got, peek, now)
		if off := is.Remaining - want.Remaining; off < -1 || off > 1 {
			t.Fatalf("%v: %d left, want %d\n%+v\n%+v", c.Limit, is.Remaining, want.Remaining, got, all)
		}
		now = now.Add(7 * time.Second)
	}
}
