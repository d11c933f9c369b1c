package headgate_test

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate"
)

// meter is one counter with a clock of its own: the least that a store can be.
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

// ask is what a charge would be told after a while, without making it.
func (m *meter) ask(c headgate.Charge, after time.Duration) headgate.Result {
	_, r := m.limit.Take(m.state, c, time.UnixMicro(m.now).Add(after))
	return r
}

func (m *meter) wait(d time.Duration) { m.now += d.Microseconds() }

// takeAll takes whatever fits.
func (m *meter) takeAll() headgate.Result {
	return m.take(headgate.Charge{Cost: headgate.MaxCost, AtLeast: 1})
}

// lastTime leaves room for what is told before the end of countable time, in 2096.
var lastTime = time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// millionth of a unit is what a bucket counts in.
const millionth = 1_000_000

// capacity is how many units a limit holds at once.
func capacity(l headgate.Limit) int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Count
}

// due is how many millionths of a unit a limit's rate makes in a number of microseconds, rounded down.
func due(l headgate.Limit, span int64) int64 {
	hi, lo := bits.Mul64(uint64(l.Count)*millionth, uint64(span))
	n, _ := bits.Div64(hi, lo, uint64(l.Window.Microseconds()))
	return int64(n)
}
