package envoyconfig

import "time"

// The units of time. They begin on the clock, counted since 1970, and each is of one length: a month is 30 days.
var (
	unitWords = []string{"second", "minute", "hour", "day", "week", "month", "year"}
	windows   = map[string]time.Duration{
		"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day, "year": 365 * day,
	}
)

const day = 24 * time.Hour
