package streamlimit_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

const year = 365 * 24 * time.Hour

// clocks are the clocks of a machine.
type clocks struct {
	wall      time.Time
	monotonic time.Duration
}

// pass lets time pass.
func (c *clocks) pass(d time.Duration) {
	c.wall = c.wall.Add(d)
	c.monotonic += d
}

// jump changes the wall clock only, as when it is set or the machine was suspended.
func (c *clocks) jump(d time.Duration) { c.wall = c.wall.Add(d) }

// openAt returns the gate of a connection that may send 10 messages per window, with clocks of its own.
func openAt(t *testing.T, limit headgate.Limit) (*streamlimit.Gate, *clocks) {
	t.Helper()
	c := &clocks{wall: time.Date(2030, 1, 15, 12, 0, 30, 0, time.UTC)}
	limits := newLimits(t, nil, streamlimit.Options{Connection: limit, OnExcess: streamlimit.Drop})
	limits.SetClocks(func() time.Time { return c.wall }, func() time.Duration { return c.monotonic })
	return limits.Open(nil), c
}

var jumps = []time.Duration{-10 * year, -time.Hour, -time.Minute, -time.Second, time.Second, time.Minute, time.Hour, 10 * year}

// TestWallClockJumps tests that the wall clock does not matter to most limits: neither more nor fewer messages pass.
func TestWallClockJumps(t *testing.T) {
	t.Parallel()
	for _, a := range []headgate.Algorithm{
		headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog,
	} {
		for _, jump := range jumps {
			count := 10
			if a == headgate.LeakyBucket {
				count = 1 // it has no burst
			}
			gate, clocks := openAt(t, headgate.Limit{Algorithm: a, Count: 10, Window: time.Minute})
			for i, want := range []int{count, 0, count, 0} {
				if n := passed(t, gate, 20); n != want {
					t.Errorf("%s, jump by %s: step %d: %d messages passed, want %d", a, jump, i, n, want)
				}
				if i == 1 {
					clocks.pass(2 * time.Minute)
				} else {
					clocks.jump(jump)
				}
			}
		}
	}
}

// TestAlignedWindows tests that windows on the clock or of the calendar follow the wall clock. One that was set back does not stop the
// connection: a new window begins.
func TestAlignedWindows(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]headgate.Limit{
		"clock":    {Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Count: 10, Window: time.Minute},
		"calendar": {Algorithm: headgate.FixedWindow, Calendar: headgate.Minute, Count: 10},
	} {
		for _, jump := range jumps {
			gate, clocks := openAt(t, limit)
			expectPassed := func(when string, want int) {
				t.Helper()
				if n := passed(t, gate, 20); n != want {
					t.Errorf("%s, jump by %s, %s: %d messages passed, want %d", name, jump, when, n, want)
				}
			}
			expectPassed("before", 10)
			clocks.jump(jump)
			if jump.Abs() == time.Second { // within the window
				expectPassed("after", 0)
			} else {
				expectPassed("after", 10)
			}
			clocks.pass(clocks.wall.Truncate(time.Minute).Add(time.Minute - time.Microsecond).Sub(clocks.wall))
			expectPassed("at the end of the window", 0)
			clocks.pass(time.Microsecond)
			expectPassed("in the next window", 10)
			clocks.pass(time.Minute)
			expectPassed("in the window after it", 10)
		}
	}
}

// TestStoreClockJumps tests that a step of the store's clock while a message is delayed has a clear result: the message is not delayed
// longer than MaxDelay, and no more messages pass than the burst.
func TestStoreClockJumps(t *testing.T) {
	t.Parallel()
	for jump, want := range map[time.Duration]int{-year: 0, -time.Hour: 0, time.Hour: 9, year: 9} {
		synctest.Test(t, func(t *testing.T) {
			var offset atomic.Int64
			store := memstore.New(memstore.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }})
			limiter := newLimiter(t, store, ofMessages(headgate.PerMinute(10)))
			gate := newLimits(t, limiter, streamlimit.Options{MaxDelay: 10 * time.Second}).Open(ada)
			passed(t, gate, 10)
			start, delayed := time.Now(), make(chan streamlimit.Verdict)
			go func() { delayed <- gate.Message(t.Context(), 1) }()
			synctest.Wait()
			offset.Store(int64(jump))
			v := <-delayed
			if waited := time.Since(start); waited > 10*time.Second {
				t.Errorf("jump by %s: waited %s", jump, waited)
			}
			if jump < 0 && (v.Action != streamlimit.Close || v.Code != 1008) || jump > 0 && v.Action != streamlimit.Pass {
				t.Errorf("jump by %s: %+v", jump, v)
			}
			others := newLimits(t, limiter, streamlimit.Options{OnExcess: streamlimit.Drop}).Open(ada)
			if n := passed(t, others, 20); n != want {
				t.Errorf("jump by %s: %d more messages passed, want %d", jump, n, want)
			}
		})
	}
}
