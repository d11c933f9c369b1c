package streamlimit

import (
	"time"

	"github.com/headgate/headgate"
)

// clock is the time of the limits of connections.
//
// Most limits follow the monotonic clock: a step of the wall clock must neither stop the messages of a connection nor let more pass.
// Windows on the clock or of the calendar follow the wall clock, because the monotonic clock stops while the machine is suspended.
type clock struct {
	aligned bool
	start   time.Time
	wall    func() time.Time
	elapsed func() time.Duration // since start, by the monotonic clock
}

func newClock(l *headgate.Limit) clock {
	start := time.Now()
	return clock{
		aligned: l.Align != headgate.FromFirst || l.Calendar != headgate.NoCalendar,
		start:   start, wall: time.Now, elapsed: func() time.Duration { return time.Since(start) },
	}
}

func (c *clock) now() time.Time {
	if c.aligned {
		return c.wall()
	}
	return c.start.Add(c.elapsed())
}
