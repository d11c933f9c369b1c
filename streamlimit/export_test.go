package streamlimit

import "time"

// StopTimer stops the gate's timer and reports whether it was running.
func (g *Gate) StopTimer() bool { return g.timer != nil && g.timer.Stop() }

// SetClocks replaces the wall clock and the monotonic clock.
func (l *Limits) SetClocks(wall func() time.Time, monotonic func() time.Duration) {
	l.clock.start, l.clock.wall, l.clock.elapsed = wall(), wall, monotonic
}
