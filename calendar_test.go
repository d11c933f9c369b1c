package headgate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestCalendarBounds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		zone       string
		unit       headgate.Calendar
		anchor     int
		now        string
		start, end string
	}{
		{"minute", "UTC", headgate.Minute, 0, "2025-03-04T05:06:07Z", "2025-03-04T05:06:00Z", "2025-03-04T05:07:00Z"},
		{"hour", "UTC", headgate.Hour, 0, "2025-03-04T05:06:07Z", "2025-03-04T05:00:00Z", "2025-03-04T06:00:00Z"},
		{"day", "UTC", headgate.Day, 0, "2025-03-04T05:06:07Z", "2025-03-04T00:00:00Z", "2025-03-05T00:00:00Z"},
		{"month over the turn of the year", "UTC", headgate.Month, 0, "2025-12-31T23:59:59Z", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"},

		{"hour at an offset of half an hour", "Asia/Kolkata", headgate.Hour, 0, "2025-03-04T05:15:00+05:30", "2025-03-04T05:00:00+05:30", "2025-03-04T06:00:00+05:30"},
		{"day at an offset of half an hour", "Asia/Kolkata", headgate.Day, 0, "2025-03-03T18:30:00Z", "2025-03-04T00:00:00+05:30", "2025-03-05T00:00:00+05:30"},
		{"hour at an offset of three quarters", "Asia/Kathmandu", headgate.Hour, 0, "2025-03-04T05:50:00+05:45", "2025-03-04T05:00:00+05:45", "2025-03-04T06:00:00+05:45"},

		{"day of 23 hours", "Europe/Berlin", headgate.Day, 0, "2025-03-30T12:00:00+02:00", "2025-03-30T00:00:00+01:00", "2025-03-31T00:00:00+02:00"},
		{"day of 25 hours", "Europe/Berlin", headgate.Day, 0, "2025-10-26T12:00:00+01:00", "2025-10-26T00:00:00+02:00", "2025-10-27T00:00:00+01:00"},
		{"hour before the one left out", "Europe/Berlin", headgate.Hour, 0, "2025-03-30T01:59:00+01:00", "2025-03-30T01:00:00+01:00", "2025-03-30T03:00:00+02:00"},
		{"hour struck twice, first", "Europe/Berlin", headgate.Hour, 0, "2025-10-26T02:30:00+02:00", "2025-10-26T02:00:00+02:00", "2025-10-26T02:00:00+01:00"},
		{"hour struck twice, second", "Europe/Berlin", headgate.Hour, 0, "2025-10-26T02:30:00+01:00", "2025-10-26T02:00:00+01:00", "2025-10-26T03:00:00+01:00"},
		{"month with a change", "Europe/Berlin", headgate.Month, 0, "2025-03-15T00:00:00+01:00", "2025-03-01T00:00:00+01:00", "2025-04-01T00:00:00+02:00"},
		{"hour before half an hour struck twice", "Australia/Lord_Howe", headgate.Hour, 0, "2025-04-06T01:59:59+11:00", "2025-04-06T01:00:00+11:00", "2025-04-06T02:00:00+10:30"},
		{"half an hour struck twice", "Australia/Lord_Howe", headgate.Hour, 0, "2025-04-06T01:30:00+10:30", "2025-04-06T01:00:00+11:00", "2025-04-06T02:00:00+10:30"},
		{"hour before half an hour left out", "Australia/Lord_Howe", headgate.Hour, 0, "2025-10-05T01:59:59+10:30", "2025-10-05T01:00:00+10:30", "2025-10-05T03:00:00+11:00"},
		{"half an hour left out", "Australia/Lord_Howe", headgate.Hour, 0, "2025-10-05T02:30:00+11:00", "2025-10-05T01:00:00+10:30", "2025-10-05T03:00:00+11:00"},
		{"clock put forward to a full hour", "America/Caracas", headgate.Hour, 0, "2016-05-01T02:15:00-04:30", "2016-05-01T02:00:00-04:30", "2016-05-01T03:00:00-04:00"},
		{"minute before the clock was put forward by part of one", "Africa/Monrovia", headgate.Minute, 0, "1972-01-07T00:44:29Z", "1972-01-07T00:43:30Z", "1972-01-07T00:45:00Z"},
		{"day of 24 and a half hours", "Australia/Lord_Howe", headgate.Day, 0, "2025-04-06T12:00:00+10:30", "2025-04-06T00:00:00+11:00", "2025-04-07T00:00:00+10:30"},

		{"midnight left out, west", "America/Sao_Paulo", headgate.Day, 0, "2017-10-15T12:00:00-02:00", "2017-10-15T01:00:00-02:00", "2017-10-16T00:00:00-02:00"},
		{"evening before it", "America/Sao_Paulo", headgate.Day, 0, "2017-10-14T23:59:59-03:00", "2017-10-14T00:00:00-03:00", "2017-10-15T01:00:00-02:00"},
		{"midnight left out, east", "Africa/Cairo", headgate.Day, 0, "2024-04-26T12:00:00+03:00", "2024-04-26T01:00:00+03:00", "2024-04-27T00:00:00+03:00"},
		{"evening before that", "Asia/Beirut", headgate.Day, 0, "2025-03-29T23:59:59+02:00", "2025-03-29T00:00:00+02:00", "2025-03-30T01:00:00+03:00"},
		{"set back at midnight to the evening before", "America/Sao_Paulo", headgate.Day, 0, "2018-02-17T23:30:00-03:00", "2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00"},
		{"midnight struck twice, first", "Asia/Amman", headgate.Day, 0, "2020-10-30T00:30:00+03:00", "2020-10-30T00:00:00+03:00", "2020-10-31T00:00:00+02:00"},
		{"midnight struck twice, second", "Asia/Amman", headgate.Day, 0, "2020-10-30T00:30:00+02:00", "2020-10-30T00:00:00+03:00", "2020-10-31T00:00:00+02:00"},
		{"midnight struck twice, evening before", "Asia/Amman", headgate.Day, 0, "2020-10-29T23:59:59+03:00", "2020-10-29T00:00:00+03:00", "2020-10-30T00:00:00+03:00"},
		{"midnight struck twice, west", "America/Havana", headgate.Day, 0, "2025-11-02T00:30:00-05:00", "2025-11-02T00:00:00-04:00", "2025-11-03T00:00:00-05:00"},
		{"set back a minute after midnight", "America/St_Johns", headgate.Day, 0, "2010-11-06T23:30:00-03:30", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		{"day before the one left out", "Pacific/Apia", headgate.Day, 0, "2011-12-29T12:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"day after the one left out", "Pacific/Apia", headgate.Day, 0, "2011-12-31T12:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		{"week that would begin on the day left out", "Pacific/Apia", headgate.Week, 5, "2011-12-29T12:00:00-10:00", "2011-12-23T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"month that would begin on the day left out", "Pacific/Apia", headgate.Month, 30, "2012-01-01T00:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-30T00:00:00+14:00"},

		{"week from Monday", "UTC", headgate.Week, 0, "2025-03-05T12:00:00Z", "2025-03-03T00:00:00Z", "2025-03-10T00:00:00Z"},
		{"week from Monday, on Monday", "UTC", headgate.Week, 1, "2025-03-03T00:00:00Z", "2025-03-03T00:00:00Z", "2025-03-10T00:00:00Z"},
		{"week from Monday, on Sunday", "UTC", headgate.Week, 1, "2025-03-09T23:59:59Z", "2025-03-03T00:00:00Z", "2025-03-10T00:00:00Z"},
		{"week from Sunday", "UTC", headgate.Week, 7, "2025-03-05T12:00:00Z", "2025-03-02T00:00:00Z", "2025-03-09T00:00:00Z"},
		{"week from Sunday, on Sunday", "UTC", headgate.Week, 7, "2025-03-09T00:00:00Z", "2025-03-09T00:00:00Z", "2025-03-16T00:00:00Z"},
		{"week with a change", "Europe/Berlin", headgate.Week, 1, "2025-03-30T12:00:00+02:00", "2025-03-24T00:00:00+01:00", "2025-03-31T00:00:00+02:00"},

		{"month from the 15th, before it", "UTC", headgate.Month, 15, "2025-01-14T23:59:59Z", "2024-12-15T00:00:00Z", "2025-01-15T00:00:00Z"},
		{"month from the 15th, on it", "UTC", headgate.Month, 15, "2025-01-15T00:00:00Z", "2025-01-15T00:00:00Z", "2025-02-15T00:00:00Z"},
		{"29th in a February of 28 days", "UTC", headgate.Month, 29, "2025-02-28T00:00:00Z", "2025-02-28T00:00:00Z", "2025-03-29T00:00:00Z"},
		{"29th in a February of 29 days", "UTC", headgate.Month, 29, "2024-02-28T23:59:59Z", "2024-01-29T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"30th before a February of 29 days", "UTC", headgate.Month, 30, "2024-02-01T00:00:00Z", "2024-01-30T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"30th after a February of 28 days", "UTC", headgate.Month, 30, "2025-03-29T23:59:59Z", "2025-02-28T00:00:00Z", "2025-03-30T00:00:00Z"},
		{"31st in a short month", "UTC", headgate.Month, 31, "2025-04-30T12:00:00Z", "2025-04-30T00:00:00Z", "2025-05-31T00:00:00Z"},
		{"31st in February of a leap year", "UTC", headgate.Month, 31, "2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2024-03-31T00:00:00Z"},
		{"31st in February of another year", "UTC", headgate.Month, 31, "2025-02-27T23:59:59Z", "2025-01-31T00:00:00Z", "2025-02-28T00:00:00Z"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			limit := headgate.Quota(1, test.unit, zone(t, test.zone))
			limit.AnchorDay = test.anchor
			start, end := headgate.CalendarBounds(limit, instant(t, test.now))
			if !start.Equal(instant(t, test.start)) || !end.Equal(instant(t, test.end)) {
				t.Errorf("at %s the window is\n%s to %s, want\n%s to %s", test.now, start, end, test.start, test.end)
			}
		})
	}
}

func instant(t testing.TB, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// zones cover every kind of clock change.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Moscow", "Europe/Istanbul", "Atlantic/Azores",
	"Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "Africa/Juba", "Asia/Amman", "Asia/Beirut", "Asia/Damascus",
	"Asia/Gaza", "Asia/Tehran", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Colombo", "Asia/Pyongyang", "Asia/Tokyo",
	"Asia/Dhaka", "Australia/Lord_Howe", "Australia/Sydney", "Australia/Eucla", "Pacific/Apia", "Pacific/Chatham",
	"Pacific/Kiritimati", "Pacific/Kwajalein", "Pacific/Tongatapu", "Pacific/Honolulu", "Antarctica/Troll",
	"America/New_York", "America/Sao_Paulo", "America/Asuncion", "America/Santiago", "America/Havana", "America/Caracas",
	"America/St_Johns", "America/Nuuk", "America/Montevideo", "America/Santo_Domingo", "Asia/Kuala_Lumpur",
	"Pacific/Norfolk", "Antarctica/Casey", "America/Scoresbysund", "America/Anchorage",
}

// TestCalendarWindowsMeet checks that every instant is in one window and that windows follow each other without gap or overlap, even
// if midnight, half an hour or a whole day is skipped or repeated.
func TestCalendarWindowsMeet(t *testing.T) {
	t.Parallel()
	const instants, seed = 150, 1
	for i, name := range zones {
		loc := zone(t, name)
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		for range instants {
			now := randomInstant(rng, loc)
			for _, limit := range calendars(rng, loc) {
				start, end := headgate.CalendarBounds(limit, now)
				if start.After(now) || !end.After(now) {
					t.Fatalf("seed %d, %s: %s is not between %s and %s", seed, what(limit), now.In(loc), start, end)
				}
				for _, same := range []time.Time{start, end.Add(-time.Microsecond)} {
					if s, e := headgate.CalendarBounds(limit, same); !s.Equal(start) || !e.Equal(end) {
						t.Fatalf("seed %d, %s: %s is between %s and %s, but %s is between %s and %s",
							seed, what(limit), now.In(loc), start, end, same.In(loc), s, e)
					}
				}
				if next, _ := headgate.CalendarBounds(limit, end); !next.Equal(end) {
					t.Fatalf("seed %d, %s: a window ends at %s, and the next begins at %s", seed, what(limit), end, next)
				}
				if _, last := headgate.CalendarBounds(limit, start.Add(-time.Microsecond)); !last.Equal(start) {
					t.Fatalf("seed %d, %s: a window begins at %s, and the last one ended at %s", seed, what(limit), start, last)
				}
			}
		}
	}
}

func what(l headgate.Limit) string {
	return fmt.Sprintf("%s in %s with anchor %d", l.Calendar, l.TimeZone, l.AnchorDay)
}

// calendars returns a limit of every unit, weeks and months with a random anchor.
func calendars(rng *rand.Rand, loc *time.Location) []headgate.Limit {
	var limits []headgate.Limit
	for unit := headgate.Minute; unit <= headgate.Month; unit++ {
		limit := headgate.Quota(1, unit, loc)
		switch unit {
		case headgate.Week:
			limit.AnchorDay = rng.IntN(8)
		case headgate.Month:
			limit.AnchorDay = rng.IntN(32)
		}
		limits = append(limits, limit)
	}
	return limits
}

// randomInstant returns a time from 1970 to 2090, preferably around a change of the zone's clocks.
func randomInstant(rng *rand.Rand, loc *time.Location) time.Time {
	now := time.UnixMicro(rng.Int64N(lastTime)).In(loc)
	if _, change := now.ZoneBounds(); !change.IsZero() && change.UnixMicro() < lastTime && rng.IntN(4) > 0 {
		span := []time.Duration{time.Minute, time.Hour, 36 * time.Hour, 40 * 24 * time.Hour}[rng.IntN(4)]
		now = change.Add(time.Duration(rng.Int64N(2*int64(span))) - span).Truncate(time.Microsecond)
	}
	if now.Before(time.Unix(0, 0)) {
		return time.Unix(0, 0)
	}
	return now
}

// change is an instant at which a zone's clock changes.
type change struct {
	at            time.Time
	before, after int // seconds east of UTC
}

// changes returns the clock changes of a zone from 1970 to 2045.
func changes(loc *time.Location) []change {
	var all []change
	for now := time.Unix(0, 0).In(loc); ; {
		_, end := now.ZoneBounds()
		if end.IsZero() || end.Year() > 2045 {
			return all
		}
		if !end.After(now) { // ZoneBounds ends years of 366 days a day early
			now = now.Add(24 * time.Hour)
			continue
		}
		now = end
		_, before := end.Add(-time.Second).Zone()
		if _, after := end.Zone(); after != before {
			all = append(all, change{end, before, after})
		}
	}
}

// spans are the usual lengths of calendar windows.
var spans = map[headgate.Calendar]time.Duration{
	headgate.Minute: time.Minute, headgate.Hour: time.Hour, headgate.Day: 24 * time.Hour, headgate.Week: 7 * 24 * time.Hour,
	headgate.Month: 31 * 24 * time.Hour,
}

// TestCalendarAtEveryChange checks that windows of every unit partition time around every clock change, and that RetryAfter is
// exact: a counter exhausted in one window allows from the first microsecond of the next one, and not before.
func TestCalendarAtEveryChange(t *testing.T) {
	t.Parallel()
	const seed = 1
	met := map[headgate.Calendar]int{}
	for i, name := range zones {
		loc := zone(t, name)
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		for _, change := range changes(loc) {
			if change.at.Unix() < 100*24*3600 {
				continue // counters begin in 1970
			}
			for _, limit := range calendars(rng, loc) {
				span := spans[limit.Calendar]
				start, end := headgate.CalendarBounds(limit, change.at.Add(-2*span))
				for !start.After(change.at.Add(2 * span)) {
					if err := checkWindow(limit, start, end, rng); err != nil {
						t.Fatalf("seed %d, %s, clock change at %s: %v", seed, what(limit), change.at, err)
					}
					met[limit.Calendar]++
					start = end
					_, end = headgate.CalendarBounds(limit, start)
				}
			}
		}
	}
	for unit := headgate.Minute; unit <= headgate.Month; unit++ {
		if met[unit] < 10_000 {
			t.Errorf("only %d windows of a %s: too few to be meaningful", met[unit], unit)
		}
	}
}

// checkWindow exhausts a counter at a random time in a window and again at its end.
func checkWindow(limit headgate.Limit, start, end time.Time, rng *rand.Rand) error {
	if !end.After(start) {
		return fmt.Errorf("a window from %s to %s", start, end)
	}
	within := start.Add(time.Duration(rng.Int64N(int64(end.Sub(start)))))
	for _, now := range []time.Time{start, within, end.Add(-time.Microsecond)} {
		now = now.Truncate(time.Microsecond)
		if s, e := headgate.CalendarBounds(limit, now); !s.Equal(start) || !e.Equal(end) {
			return fmt.Errorf("%s is between %s and %s, but also between %s and %s", now, start, end, s, e)
		}
		m := meter{limit: limit, now: now.UnixMicro()}
		one := headgate.Charge{Cost: 1}
		m.take(one)
		denied := m.take(one)
		if denied.Allowed || denied.RetryAfter != end.Sub(now) {
			return fmt.Errorf("%s is between %s and %s, but a second charge gets %+v", now, start, end, denied)
		}
		if early := m.preview(one, denied.RetryAfter-time.Microsecond); early.Allowed {
			return fmt.Errorf("denied at %s for %s, but allowed a microsecond before", now, denied.RetryAfter)
		}
		if then := m.preview(one, denied.RetryAfter); !then.Allowed {
			return fmt.Errorf("denied at %s for %s, and then again for %s", now, denied.RetryAfter, then.RetryAfter)
		}
	}
	return nil
}

// TestClockWindowsBeginWithFullUnits checks that a minute or hour begins whenever the clock shows a full one, by reading the clock
// every second around every change that is not by whole hours.
func TestClockWindowsBeginWithFullUnits(t *testing.T) {
	t.Parallel()
	looked := 0
	for _, name := range zones {
		loc := zone(t, name)
		for _, change := range changes(loc) {
			if (change.after-change.before)%3600 == 0 {
				continue
			}
			looked++
			for _, unit := range []headgate.Calendar{headgate.Minute, headgate.Hour} {
				limit := headgate.Quota(1, unit, loc)
				_, next := headgate.CalendarBounds(limit, change.at.Add(-3*time.Hour))
				for now := next; now.Before(change.at.Add(3 * time.Hour)); now = now.Add(time.Second) {
					_, minute, second := now.In(loc).Clock()
					if full := second == 0 && (unit == headgate.Minute || minute == 0); full != now.Equal(next) {
						t.Fatalf("%s in %s: the clock shows %s, and a window begins at %s", unit, name, now.In(loc), next)
					}
					if now.Equal(next) {
						_, next = headgate.CalendarBounds(limit, now)
					}
				}
			}
		}
	}
	if looked < 100 {
		t.Errorf("only %d changes by part of an hour: too few to be meaningful", looked)
	}
}
