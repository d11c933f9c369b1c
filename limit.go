package headgate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of counts. They keep every intermediate result of the arithmetic below 2^53, up to which the doubles of Redis' Lua are
// exact (docs/adr/0004-integers-and-resolution.md).
const (
	// MaxCost is the largest cost of one charge and the largest Count and Burst of a limit.
	MaxCost = 1_000_000_000
	// MaxLogCount is the largest Count of a sliding log, which stores a timestamp per charge.
	MaxLogCount = 10_000

	minWindow = time.Millisecond
	maxWindow = 366 * 24 * time.Hour
	maxRefill = 10 * maxWindow

	minLease     = time.Second
	maxLease     = time.Hour
	defaultLease = 10 * time.Second
)

// Algorithm is how a limit counts. Use TokenBucket unless there is a reason not to: it has no window edge to exploit, and its
// state is two numbers.
type Algorithm uint8

const (
	// TokenBucket allows Burst units at once and refills evenly at Count per Window: at most Burst + rate × W units in any
	// span W.
	TokenBucket Algorithm = iota
	// LeakyBucket spaces requests evenly at Count per Window: Result.Delay is how long to delay a request, at most its charge's
	// MaxDelay.
	LeakyBucket
	// FixedWindow allows Count units per window and starts at 0 in the next window: at most 2 × Count in any span of one window.
	FixedWindow
	// SlidingWindow adds the weighted count of the previous window to the count of the current one: close to exact on real
	// traffic, at most 2 × Count against an adversary. Its state is three numbers.
	SlidingWindow
	// SlidingLog stores a timestamp per charge: exactly Count in any span of one window.
	SlidingLog
	// Concurrency allows Count units to be in use at a time: they are acquired and released by holders, such as nodes. Window is
	// the lease, after which the units of a holder that has not renewed it are free again.
	Concurrency
)

var algorithmNames = [...]string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "concurrency"}

// String returns the algorithm's name in rule files: "token_bucket".
func (a Algorithm) String() string { return nameOf(algorithmNames[:], a) }

// Align is when a fixed or sliding window begins.
type Align uint8

const (
	// FromFirst begins a window with the first charge after the last window ended, and the second window of a sliding window when the
	// first one ends.
	FromFirst Align = iota
	// OnClock begins windows at multiples of Window since the Unix epoch, for all subjects at the same time.
	OnClock
	// OnClockSpread is OnClock shifted by an offset that depends on the subject, so that windows do not all roll at the same time.
	OnClockSpread
)

var alignNames = []string{"from the first request", "on the clock", "on the clock, spread"}

// String returns a description: "on the clock".
func (a Align) String() string { return nameOf(alignNames, a) }

// Limit is how many units are allowed in which time. Use PerSecond, PerMinute, PerHour, PerDay, Per or Quota for the usual ones.
// The zero value is invalid and denies everything. Changing the numbers of a limit keeps its counter: used units stay used.
type Limit struct {
	// Algorithm is how the limit counts; the zero value is TokenBucket.
	Algorithm Algorithm
	// Align is when a fixed or sliding window begins.
	Align Align
	// Calendar makes a fixed window follow a calendar minute, hour, day, week or month; Window must then be 0.
	Calendar Calendar
	// Count is how many units are allowed per Window.
	Count int64
	// Window is the span of Count, from a millisecond to 366 days. For a concurrency limit it is the lease, from a second to an
	// hour.
	Window time.Duration
	// Burst is the capacity of a token bucket; 0 means Count.
	Burst int64
	// TimeZone is the time zone of the calendar; nil means UTC.
	TimeZone *time.Location
	// AnchorDay is the day on which a calendar month (1 to 31, or the last day of a shorter month) or a calendar week (1 for
	// Monday to 7 for Sunday) begins; 0 means 1.
	AnchorDay int
}

// PerSecond returns a token bucket of n units per second.
func PerSecond(n int64) Limit { return Per(n, time.Second) }

// PerMinute returns a token bucket of n units per minute.
func PerMinute(n int64) Limit { return Per(n, time.Minute) }

// PerHour returns a token bucket of n units per hour.
func PerHour(n int64) Limit { return Per(n, time.Hour) }

// PerDay returns a token bucket of n units per 24 hours.
func PerDay(n int64) Limit { return Per(n, 24*time.Hour) }

// Per returns a token bucket of n units per window.
func Per(n int64, window time.Duration) Limit { return Limit{Count: n, Window: window} }

// Concurrent returns a limit of n units in use at a time, for example n requests in flight. It applies to requests that Limiter.Begin
// decides.
func Concurrent(n int64) Limit { return Limit{Algorithm: Concurrency, Count: n, Window: defaultLease} }

// Quota returns a limit of n units per calendar unit in a time zone (nil means UTC): Quota(100_000, Month, berlin).
func Quota(n int64, unit Calendar, zone *time.Location) Limit {
	return Limit{Algorithm: FixedWindow, Count: n, Calendar: unit, TimeZone: zone}
}

// String returns the complete limit in the notation of rule files: "10/minute", "1000/minute, burst 200",
// "5/15m, fixed_window on the clock", "100000/month in Europe/Berlin from day 15", "20 concurrent, lease 1m".
func (l Limit) String() string {
	if l.Algorithm == Concurrency {
		text := strconv.FormatInt(l.Count, 10) + " concurrent"
		if l.Window != defaultLease {
			text += ", lease " + spanName(l.Window)
		}
		return text
	}
	text := strconv.FormatInt(l.Count, 10) + "/"
	if l.Calendar != NoCalendar {
		text += l.Calendar.String() + " in UTC"
		if l.TimeZone != nil {
			text = strings.TrimSuffix(text, "UTC") + l.TimeZone.String()
		}
		if l.AnchorDay > 1 {
			text += " from day " + strconv.Itoa(l.AnchorDay)
		}
		return text
	}
	text += windowName(l.Window)
	if l.Burst > 0 && l.Burst != l.Count {
		text += ", burst " + strconv.FormatInt(l.Burst, 10)
	}
	if l.Algorithm != TokenBucket {
		text += ", " + l.Algorithm.String()
	}
	if l.Align != FromFirst {
		text += " " + l.Align.String()
	}
	return text
}

// windowName returns a window in the notation of rule files: "minute", "30d", "15m".
func windowName(w time.Duration) string {
	for _, unit := range []struct {
		span time.Duration
		name string
	}{{time.Second, "second"}, {time.Minute, "minute"}, {time.Hour, "hour"}, {24 * time.Hour, "day"}} {
		if w == unit.span {
			return unit.name
		}
	}
	const day = 24 * time.Hour
	if w > day && w%day == 0 {
		return strconv.FormatInt(int64(w/day), 10) + "d"
	}
	return spanName(w)
}

// spanName returns a span without zero units at its end: "15m", "1h30m".
func spanName(w time.Duration) string {
	text := w.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// withRate returns the limit with another count and window, and the default burst.
func (l Limit) withRate(count int64, window time.Duration) Limit {
	l.Count, l.Window, l.Burst = count, window, 0
	return l
}

// Validate returns an error that names the invalid field, its value and its bounds. An invalid limit denies everything.
func (l Limit) Validate() error { return l.validate() }

func (l *Limit) validate() error {
	if int(l.Algorithm) >= len(algorithmNames) {
		return fmt.Errorf("algorithm %d: must be 0 to %d", l.Algorithm, len(algorithmNames)-1)
	}
	if l.Count < 1 || l.Count > MaxCost {
		return fmt.Errorf("count %d: must be 1 to %d", l.Count, MaxCost)
	}
	if l.Burst != 0 && l.Algorithm != TokenBucket {
		return fmt.Errorf("burst %d: only token_bucket has a burst, not %s", l.Burst, l.Algorithm)
	}
	if l.Burst < 0 || l.Burst > MaxCost {
		return fmt.Errorf("burst %d: must be 1 to %d", l.Burst, MaxCost)
	}
	if l.Algorithm == SlidingLog && l.Count > MaxLogCount {
		return fmt.Errorf("count %d: sliding_log stores a timestamp per charge: must be 1 to %d, or use sliding_window", l.Count, MaxLogCount)
	}
	if l.Calendar != NoCalendar {
		return l.validateCalendar()
	}
	if l.Algorithm != FixedWindow && l.Algorithm != SlidingWindow && l.Align != FromFirst {
		return fmt.Errorf("align: only fixed_window and sliding_window have an alignment, not %s", l.Algorithm)
	}
	if l.Align > OnClockSpread {
		return fmt.Errorf("align %d: must be 0 to %d", l.Align, OnClockSpread)
	}
	if l.TimeZone != nil || l.AnchorDay != 0 {
		return errors.New("time zone and anchor day: only valid with a calendar: set Calendar")
	}
	return l.validateWindow()
}

func (l *Limit) validateWindow() error {
	if l.Algorithm == Concurrency && (l.Window < minLease || l.Window > maxLease) {
		return fmt.Errorf("lease %s: must be %s to %s", l.Window, spanName(minLease), spanName(maxLease))
	}
	if l.Window < minWindow || l.Window > maxWindow {
		return fmt.Errorf("window %s: must be %s to %d days", l.Window, minWindow, maxWindow/(24*time.Hour))
	}
	if l.Window%time.Microsecond != 0 {
		return fmt.Errorf("window %s: must be a multiple of 1µs", l.Window)
	}
	if l.Algorithm != TokenBucket && l.Algorithm != LeakyBucket {
		return nil
	}
	p, q := l.rate()
	if !mulLessEqual(p, 1, MaxCost, q) {
		return fmt.Errorf("rate %d per %s: must be at most %d per second", l.Count, l.Window, MaxCost)
	}
	if !mulLessEqual(p, q, maxExact, 1) {
		return fmt.Errorf("rate %d per %s: cannot be counted exactly: use a rounder count or a window of whole seconds", l.Count, l.Window)
	}
	if !mulLessEqual(l.capacity()*scale, q, int64(maxRefill/time.Microsecond), p) {
		return fmt.Errorf("burst %d: takes more than ten years to refill at %d per %s: use a smaller burst", l.capacity(), l.Count, l.Window)
	}
	return nil
}

// Capacity returns the largest cost that the limit can ever grant at once: the burst of a token bucket, otherwise the count.
func (l Limit) Capacity() int64 { return l.capacity() }

func (l *Limit) capacity() int64 {
	if l.Algorithm == TokenBucket && l.Burst > 0 {
		return l.Burst
	}
	return l.Count
}

// window returns the window in microseconds.
func (l *Limit) window() int64 { return int64(l.Window / time.Microsecond) }

// rate returns how fast a bucket drains: p millionths of a unit in q microseconds. p × q is at most maxExact for every valid
// limit.
func (l *Limit) rate() (p, q int64) {
	w := l.window()
	switch {
	case w%1_000_000 == 0:
		p, q = l.Count, w/1_000_000
	case w%1_000 == 0:
		p, q = l.Count*1_000, w/1_000
	default:
		p, q = l.Count*1_000_000, w
	}
	if !mulLessEqual(p, q, maxExact, 1) {
		g := gcd(p, q)
		p, q = p/g, q/g
	}
	return p, q
}
