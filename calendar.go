package headgate

import (
	"fmt"
	"sort"
	"time"
)

// Calendar is a calendar unit that a fixed window can follow.
type Calendar uint8

// The calendar units; NoCalendar means that Limit.Window is the window.
const (
	NoCalendar Calendar = iota
	Minute
	Hour
	Day
	Week
	Month
)

var calendarNames = []string{"none", "minute", "hour", "day", "week", "month"}

// String returns the unit's name in rule files: "month".
func (c Calendar) String() string { return nameOf(calendarNames, c) }

func (l *Limit) validateCalendar() error {
	maxDay := 0
	switch l.Calendar {
	case Week:
		maxDay = 7
	case Month:
		maxDay = 31
	}
	switch {
	case l.Algorithm != FixedWindow:
		return fmt.Errorf("calendar: only fixed_window can follow a calendar, not %s", l.Algorithm)
	case int(l.Calendar) >= len(calendarNames):
		return fmt.Errorf("calendar %d: must be 0 to %d", l.Calendar, len(calendarNames)-1)
	case l.Window != 0 || l.Align != FromFirst:
		return fmt.Errorf("calendar %s: has its own window: leave Window and Align unset", l.Calendar)
	case l.AnchorDay != 0 && maxDay == 0:
		return fmt.Errorf("anchor day %d: a calendar %s has none", l.AnchorDay, l.Calendar)
	case l.AnchorDay < 0 || l.AnchorDay > maxDay:
		return fmt.Errorf("anchor day %d: must be 1 to %d for a calendar %s", l.AnchorDay, maxDay, l.Calendar)
	}
	return nil
}

// calendarBounds returns the calendar window that contains now: from start up to but not including end.
func (l *Limit) calendarBounds(now time.Time) (start, end time.Time) {
	zone := l.TimeZone
	if zone == nil {
		zone = time.UTC
	}
	t := now.In(zone)
	year, month, day := t.Date()
	anchor := max(l.AnchorDay, 1)
	edge := func(k int) time.Time { return dayStart(year, month, day+k, zone) }
	switch l.Calendar {
	case Minute:
		return clockBounds(t, time.Minute)
	case Hour:
		return clockBounds(t, time.Hour)
	case Week:
		day -= (int(t.Weekday()) + 7 - anchor%7) % 7
		edge = func(k int) time.Time { return dayStart(year, month, day+7*k, zone) }
	case Month:
		edge = func(k int) time.Time { return monthStart(year, month+time.Month(k), anchor, zone) }
	}
	// If the clock is set back across midnight or a day is skipped, the date alone does not determine the window.
	start, end = edge(0), edge(1)
	for k := -1; start.After(t); k-- {
		start, end = edge(k), start
	}
	for k := 2; !end.After(t); k++ {
		start, end = end, edge(k)
	}
	return start, end
}

// clockBounds returns the minute or hour that contains t. A unit begins whenever the local clock shows a full minute or hour. A
// change of the clock by part of a unit neither begins nor ends one, so that windows partition time in every zone.
func clockBounds(t time.Time, unit time.Duration) (start, end time.Time) {
	start = t.Add(-sinceMidnight(t) % unit)
	end = start.Add(unit)
	if sinceMidnight(start)%unit != 0 { // the clock was changed since then
		before := clockChange(start, t).Add(-time.Second)
		start = before.Add(-sinceMidnight(before) % unit)
	}
	if sinceMidnight(end)%unit != 0 { // the clock will be changed before then
		end = clockChange(t.Truncate(time.Second), end)
		if past := sinceMidnight(end) % unit; past > 0 {
			end = end.Add(unit - past)
		}
	}
	return start, end
}

// clockChange returns when the local clock changed: the first second after from with the zone offset of to, which differs from
// that of from. It searches because ZoneBounds is not exact in the years for which a zone has only a rule.
func clockChange(from, to time.Time) time.Time {
	_, offset := to.Zone()
	seconds := int(to.Sub(from)/time.Second) + 1
	return from.Add(time.Duration(sort.Search(seconds, func(n int) bool {
		_, o := from.Add(time.Duration(n) * time.Second).Zone()
		return o == offset
	})) * time.Second)
}

// monthStart returns the start of the anchor day of a month, or of its last day if the month is shorter.
func monthStart(year int, month time.Month, anchor int, zone *time.Location) time.Time {
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return dayStart(year, month, min(anchor, last), zone)
}

// dayStart returns the first instant of a local day, or of the next day if the zone skips it. If the clock changes at midnight,
// time.Date may return an instant of the day before: the day then begins when that one ends. If midnight occurs twice, time.Date
// may return the second one: the day then began before the clock changed.
func dayStart(year int, month time.Month, day int, zone *time.Location) time.Time {
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	if y, m, d := t.Date(); time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(time.Date(year, month, day, 0, 0, 0, 0, time.UTC)) {
		return t.Add(24*time.Hour - sinceMidnight(t))
	}
	if changed, _ := t.ZoneBounds(); !changed.IsZero() && t.Sub(changed) < 12*time.Hour {
		if before := changed.Add(-time.Nanosecond); before.Day() == t.Day() {
			return before.Add(-sinceMidnight(before))
		}
	}
	return t
}

// sinceMidnight returns the time that the local clock shows.
func sinceMidnight(t time.Time) time.Duration {
	h, m, s := t.Clock()
	return time.Duration(h*3600+m*60+s)*time.Second + time.Duration(t.Nanosecond())
}
