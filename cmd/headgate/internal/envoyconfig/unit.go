package envoyconfig

import "time"

// The units of time. Windows are aligned to the Unix epoch and have a fixed length: a month is 30 days.
var (
	unitWords = []string{"second", "minute", "hour", "day", "week", "month", "year"}
	windows   = map[string]time.Duration{
		"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day, "year": 365 * day,
	}
)

const day = 24 * time.Hour
