package wallclock

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock is the wall clock, to the microsecond, and goes on being it.
func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := New()
		for range 100 {
			if now, want := clock(), time.Now(); !now.Equal(want) {
				t.Fatalf("the clock says %s, it is %s", now, want)
			}
			time.Sleep(99*time.Millisecond + 7*time.Microsecond)
		}
	})
}
