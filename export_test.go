package headgate

import "time"

// CalendarBounds lets the tests of calendars look further back than counters do.
func CalendarBounds(l Limit, now time.Time) (start, end time.Time) { return l.calendarBounds(now) }
