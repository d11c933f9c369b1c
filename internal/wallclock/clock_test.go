package wallclock

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock agrees with the wall clock to the microsecond, also after its base was renewed.
func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := New()
		for range 100 {
			if now, want := clock(), time.Now(); !now.Equal(want) {
				t.Fatalf("got %s, want %s", now, want)
			}
			time.Sleep(99*time.Millisecond + 7*time.Microsecond)
		}
	})
}
