package headgate

import (
	"fmt"
	"sort"
	"time"
)

// Calendar is a unit of the calendar that a fixed window can follow.
type Calendar uint8

// The units of the calendar; NoCalendar leaves the window to Limit.Window.
const (
	NoCalendar Calendar = iota
	Minute
	Hour
	Day
	Week
	Month
)

var calendarNames = []string{"none", "minute", "hour", "day", "week", "month"}

// String is the unit's name in rules: "month".
func (c Calendar) String() string { return nameOf(calendarNames, c) }

func (l *Limit) validateCalendar() error {
	most := 0
	switch l.Calendar {
	case Week:
		most = 7
	case Month:
		most = 31
	}
	switch {
	case l.Algorithm != FixedWindow:
		return fmt.Errorf("a calendar belongs to fixed_window, not %s", l.Algorithm)
	case int(l.Calendar) >= len(calendarNames):
		return fmt.Errorf("there is no calendar unit %d", l.Calendar)
	case l.Window != 0 || l.Align != FromFirst:
		return fmt.Errorf("a calendar %s has its own window: leave Window and Align away", l.Calendar)
	case l.AnchorDay != 0 && most == 0:
		return fmt.Errorf("a calendar %s has no anchor day", l.Calendar)
	case l.AnchorDay < 0 || l.AnchorDay > most:
		return fmt.Errorf("an anchor day of %d is out of bounds: a calendar %s takes 1 to %d", l.AnchorDay, l.Calendar, most)
	}
	return nil
}

// calendarBounds is the calendar window that holds the time now: from start up to, not including, end.
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
	// Where the clock is set back over midnight, or a day is left out, the date alone does not tell the window.
	start, end = edge(0), edge(1)
	for k := -1; start.After(t); k-- {
		start, end = edge(k), start
	}
	for k := 2; !end.After(t); k++ {
		start, end = end, edge(k)
	}
	return start, end
}

// clockBounds returns the minute or hour that holds t. One begins whenever the local clock shows a full one: a change of the
// clock by part of a unit neither begins nor ends it, so that windows are a partition of time in every zone.
func clockBounds(t time.Time, unit time.Duration) (start, end time.Time) {
	start = t.Add(-sinceMidnight(t) % unit)
	end = start.Add(unit)
	if sinceMidnight(start)%unit != 0 { // the clock was set since then
		before := clockSet(start, t).Add(-time.Second)
		start = before.Add(-sinceMidnight(before) % unit)
	}
	if sinceMidnight(end)%unit != 0 { // the clock will be set until then
		end = clockSet(t.Truncate(time.Second), end)
		if past := sinceMidnight(end) % unit; past > 0 {
			end = end.Add(unit - past)
		}
	}
	return start, end
}

// clockSet returns when the local clock was set: the first second after from with the offset of to, which is another. It
// looks for itself because ZoneBounds is not exact in the years for which a zone has only a rule.
func clockSet(from, to time.Time) time.Time {
	_, offset := to.Zone()
	seconds := int(to.Sub(from)/time.Second) + 1
	return from.Add(time.Duration(sort.Search(seconds, func(n int) bool {
		_, o := from.Add(time.Duration(n) * time.Second).Zone()
		return o == offset
	})) * time.Second)
}

// monthStart is the anchor day of a month, or the month's last day if it is shorter.
func monthStart(year int, month time.Month, anchor int, zone *time.Location) time.Time {
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return dayStart(year, month, min(anchor, last), zone)
}

// dayStart is the first instant of a local day, or of the next one if it is left out. Where the clock changes at midnight,
// time.Date may answer with an instant of the day before: the day then begins when that one ends. Or midnight strikes
// twice, and it may answer with the second: the day then began before the clock was changed.
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

func sinceMidnight(t time.Time) time.Duration {
	h, m, s := t.Clock()
	return time.Duration(h*3600+m*60+s)*time.Second + time.Duration(t.Nanosecond())
}
