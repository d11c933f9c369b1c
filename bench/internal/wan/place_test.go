package wan

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// TestServersInRegions starts a Redis in each region, one of them with a clock that is ahead.
func TestServersInRegions(t *testing.T) {
	testenv.Long(t)
	n := newNetwork(t, 1)
	a := testenv.Start(t, testenv.Redis.In(n.Place("a")))
	b := testenv.StartFaked(t, testenv.Redis.In(n.Place("b")))
	b.StepClock(t, time.Hour)
	a.Must(t, "SET", "key", "value")
	if found := b.Must(t, "EXISTS", "key"); found != int64(0) {
		t.Error("both regions have the same server")
	}
	a.Restart(t)
	b.Restart(t)
}
