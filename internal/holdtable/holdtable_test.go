package holdtable

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestTableDropsExpiredHolds(t *testing.T) {
	t.Parallel()
	var table Table
	limit := headgate.PerHour(headgate.MaxCost)
	charge := headgate.Charge{Counter: headgate.CounterOf("r", "", limit.Algorithm), Limit: limit, Cost: 1, Hold: time.Second}
	const made, lasting = 20_000, 1_000
	var last headgate.Receipt
	for i := range made {
		now := time.UnixMicro(int64(i))
		last = headgate.Receipt{Units: 1, Mark: int64(i), Time: int64(i + lasting)}
		table.Keep(&charge, &headgate.Result{Receipt: last, Time: now})
	}
	if n := len(table.holds); n < lasting || n > 2*lasting {
		t.Errorf("%d holds stored, %d of them not expired", n, lasting)
	}
	release := headgate.Charge{Counter: charge.Counter, Limit: limit, Release: last}
	if h := table.Load(&release); h != (headgate.Hold{Units: 1, End: last.Time}) {
		t.Errorf("loaded %+v of %+v", h, last)
	}
	n := len(table.holds)
	table.Keep(&release, &headgate.Result{})
	if h := table.Load(&release); h != (headgate.Hold{}) || len(table.holds) != n-1 {
		t.Errorf("a released hold is still stored: %+v", h)
	}
}
