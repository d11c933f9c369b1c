package region

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestDeniedWithSpare counts denials of a region that cannot reach the others, and few of regions that have used up the limit
// together.
func TestDeniedWithSpare(t *testing.T) {
	t.Parallel()
	for _, limit := range []headgate.Limit{
		{Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 300, Window: 20 * time.Second},
		{Count: 20, Window: time.Second, Burst: 60},
	} {
		base := scenario{
			seed: 1, limit: limit, weights: []int64{1, 1, 1}, length: time.Minute,
			oneWay: [][]time.Duration{{0, 1e6, 1e6}, {1e6, 0, 1e6}, {1e6, 1e6, 0}},
		}
		alone := base
		alone.load = func(time.Duration) []float64 { return []float64{50, 0, 0} }
		alone.noBorrowing = true
		everywhere := base
		everywhere.load = func(time.Duration) []float64 { return []float64{50, 50, 50} }
		cut, used := alone.run(t), everywhere.run(t)
		denied := func(o *outcome) (n int64) {
			for _, g := range o.grants {
				if g.granted == 0 {
					n++
				}
			}
			return n
		}
		t.Logf("%s: cut off: %d of %d denials; used up: %d of %d", limit, cut.withSpare, denied(&cut), used.withSpare, denied(&used))
		if 2*cut.withSpare < denied(&cut) {
			t.Errorf("%s: a region is cut off, and %d of %d denials are counted", limit, cut.withSpare, denied(&cut))
		}
		if 5*used.withSpare > denied(&used) {
			t.Errorf("%s: the limit is used up, and %d of %d denials are counted", limit, used.withSpare, denied(&used))
		}
	}
}
