package envoyconfig

import "time"

// The units of time. They begin on the clock, counted since 1970, and each is of one length: a month is 30 days.
var (
	unitWords   = []string{"second", "minute", "hour", "day", "week", "month", "year"}
	unitWindows = []time.Duration{time.Second, time.Minute, time.Hour, day, 7 * day, 30 * day, 365 * day}
)

const day = 24 * time.Hour

// windowOf is a unit's length, or 0 if there is no such unit.
func windowOf(unit string) time.Duration {
	for i, word := range unitWords {
		if word == unit {
			return unitWindows[i]
		}
	}
	return 0
}
