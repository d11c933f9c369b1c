package pace

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
)

// So many pass at once, whoever asks, and as many again when the limit says so.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(headgate.Limit{Algorithm: headgate.SlidingLog, Count: 20, Window: time.Second})
		for range 3 {
			var passed atomic.Int64
			var asking sync.WaitGroup
			for range 30 {
				asking.Go(func() {
					if p.Allow(time.Now()) {
						passed.Add(1)
					}
				})
			}
			asking.Wait()
			if passed.Load() != 20 {
				t.Errorf("%d passed", passed.Load())
			}
			time.Sleep(time.Second - time.Microsecond)
			if p.Allow(time.Now()) {
				t.Error("one passed too early")
			}
			time.Sleep(time.Microsecond)
		}
	})
}
