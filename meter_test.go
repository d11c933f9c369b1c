package headgate_test

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate"
)

// meter is one counter with its own clock: the simplest store.
type meter struct {
	limit headgate.Limit
	state headgate.State
	now   int64 // microseconds since 1970
}

func (m *meter) take(c headgate.Charge) headgate.Result {
	var r headgate.Result
	m.state, r = m.limit.Take(m.state, c, time.UnixMicro(m.now))
	return r
}

// preview returns the result that a charge would have after a wait, without making it.
func (m *meter) preview(c headgate.Charge, after time.Duration) headgate.Result {
	_, r := m.limit.Take(m.state, c, time.UnixMicro(m.now).Add(after))
	return r
}

func (m *meter) wait(d time.Duration) { m.now += d.Microseconds() }

// takeAll takes everything that fits.
func (m *meter) takeAll() headgate.Result {
	return m.take(headgate.Charge{Cost: headgate.MaxCost, AtLeast: 1})
}

// lastTime leaves enough time for waits before the last time that can be counted, in 2096.
var lastTime = time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// millionth is the number of millionths in a unit, the resolution of buckets.
const millionth = 1_000_000

// capacity returns the capacity of a limit.
func capacity(l headgate.Limit) int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Count
}

// due returns how many millionths of a unit a limit's rate yields in a number of microseconds, rounded down.
func due(l headgate.Limit, span int64) int64 {
	hi, lo := bits.Mul64(uint64(l.Count)*millionth, uint64(span))
	n, _ := bits.Div64(hi, lo, uint64(l.Window.Microseconds()))
	return int64(n)
}
