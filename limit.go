package headgate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of what can be counted. They keep every intermediate number of the arithmetic below 2^53, where the doubles of
// Redis' Lua are still exact (docs/adr/0004-integers-and-resolution.md).
const (
	// MaxCost is the largest cost of one charge and the largest Count and Burst of a limit.
	MaxCost = 1_000_000_000
	// MaxLogCount is the largest Count of a sliding log, which keeps a timestamp per charge.
	MaxLogCount = 10_000

	minWindow = time.Millisecond
	maxWindow = 366 * 24 * time.Hour
	maxRefill = 10 * maxWindow
)

// Algorithm says how a limit counts. Choose TokenBucket unless there is a reason not to: it has no edges to exploit and
// its state is two numbers.
type Algorithm uint8

const (
	// TokenBucket lets Burst units pass at once and refills evenly at Count per Window: at most Burst + rate × W in any
	// span W.
	TokenBucket Algorithm = iota
	// LeakyBucket spaces requests evenly at Count per Window: a request is told how long to wait before it goes on, up to
	// its charge's MaxDelay.
	LeakyBucket
	// FixedWindow counts to Count and starts again with the next window: at most 2 × Count in any span of one window.
	FixedWindow
	// SlidingWindow weighs the previous window's count against the present one's: close to exact on real traffic, at most
	// 2 × Count against an adversary, in three numbers.
	SlidingWindow
	// SlidingLog remembers each charge: exactly Count in any span, at the price of a timestamp per charge.
	SlidingLog
)

var algorithmNames = [...]string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"}

// String is the algorithm's name in rules: "token_bucket".
func (a Algorithm) String() string { return nameOf(algorithmNames[:], a) }

// Align says when a fixed window begins.
type Align uint8

const (
	// FromFirst begins a window with the first charge after the last window ended.
	FromFirst Align = iota
	// OnClock begins windows at multiples of Window since the Unix epoch, for all subjects at once.
	OnClock
	// OnClockSpread is OnClock moved by an amount that depends on the subject, so that not all windows roll at once.
	OnClockSpread
)

var alignNames = []string{"from the first request", "on the clock", "on the clock, spread"}

// String says it in words: "on the clock".
func (a Align) String() string { return nameOf(alignNames, a) }

// Limit is how much may pass in which time. The zero value admits nothing; PerSecond and its kin make the usual ones.
// Changing the numbers of a limit keeps its counter: units already used stay used.
type Limit struct {
	Algorithm Algorithm
	// Align says when a fixed window begins.
	Align Align
	// Calendar makes a fixed window of a calendar's minute, hour, day, week or month; Window is then not used.
	Calendar Calendar
	// Count is how many units pass per Window.
	Count int64
	// Window is the span that Count is for, from a millisecond to 366 days.
	Window time.Duration
	// Burst is how many units a token bucket holds; 0 means Count.
	Burst int64
	// TimeZone is where the calendar is read; nil means UTC.
	TimeZone *time.Location
	// AnchorDay is the day on which a calendar month (1 to 31; in a shorter month its last day) or week (1 Monday to 7
	// Sunday) begins; 0 means 1.
	AnchorDay int
}

// PerSecond is a token bucket of n units per second.
func PerSecond(n int64) Limit { return Per(n, time.Second) }

// PerMinute is a token bucket of n units per minute.
func PerMinute(n int64) Limit { return Per(n, time.Minute) }

// PerHour is a token bucket of n units per hour.
func PerHour(n int64) Limit { return Per(n, time.Hour) }

// PerDay is a token bucket of n units per 24 hours.
func PerDay(n int64) Limit { return Per(n, 24*time.Hour) }

// Per is a token bucket of n units per window.
func Per(n int64, window time.Duration) Limit { return Limit{Count: n, Window: window} }

// Quota is n units per calendar unit in a time zone (nil means UTC): Quota(100_000, Month, berlin).
func Quota(n int64, unit Calendar, zone *time.Location) Limit {
	return Limit{Algorithm: FixedWindow, Count: n, Calendar: unit, TimeZone: zone}
}

// String is the limit in the words of rule documents, all of it: "10/minute", "1000/minute, burst 200",
// "5/15m, fixed_window on the clock", "100000/month in Europe/Berlin from day 15".
func (l Limit) String() string {
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
	text := w.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// withRate is the limit with other numbers.
func (l Limit) withRate(count int64, window time.Duration) Limit {
	l.Count, l.Window, l.Burst = count, window, 0
	return l
}

// Validate says what is wrong with the limit and what to write instead. A limit that is not valid admits nothing.
func (l Limit) Validate() error { return l.validate() }

func (l *Limit) validate() error {
	if int(l.Algorithm) >= len(algorithmNames) {
		return fmt.Errorf("there is no algorithm %d", l.Algorithm)
	}
	if l.Count < 1 || l.Count > MaxCost {
		return fmt.Errorf("a count of %d is out of bounds: write 1 to %d", l.Count, MaxCost)
	}
	if l.Burst != 0 && l.Algorithm != TokenBucket {
		return fmt.Errorf("burst belongs to token_bucket; a %s has none", l.Algorithm)
	}
	if l.Burst < 0 || l.Burst > MaxCost {
		return fmt.Errorf("a burst of %d is out of bounds: write 1 to %d", l.Burst, MaxCost)
	}
	if l.Algorithm == SlidingLog && l.Count > MaxLogCount {
		return fmt.Errorf("a sliding_log keeps a timestamp per charge and counts to at most %d, not %d: use sliding_window", MaxLogCount, l.Count)
	}
	if l.Calendar != NoCalendar {
		return l.validateCalendar()
	}
	if l.Algorithm != FixedWindow && l.Align != FromFirst {
		return fmt.Errorf("align belongs to fixed_window, not %s", l.Algorithm)
	}
	if l.Align > OnClockSpread {
		return fmt.Errorf("there is no alignment %d", l.Align)
	}
	if l.TimeZone != nil || l.AnchorDay != 0 {
		return errors.New("a time zone and an anchor day belong to a calendar: set Calendar too")
	}
	return l.validateWindow()
}

func (l *Limit) validateWindow() error {
	if l.Window < minWindow || l.Window > maxWindow {
		return fmt.Errorf("a window of %s is out of bounds: write %s to %d days", l.Window, minWindow, maxWindow/(24*time.Hour))
	}
	if l.Window%time.Microsecond != 0 {
		return fmt.Errorf("a window of %s is finer than a microsecond", l.Window)
	}
	if l.Algorithm != TokenBucket && l.Algorithm != LeakyBucket {
		return nil
	}
	p, q := l.rate()
	if !atMost(p, 1, MaxCost, q) {
		return fmt.Errorf("%d per %s is faster than %d per second", l.Count, l.Window, MaxCost)
	}
	if !atMost(p, q, maxExact, 1) {
		return fmt.Errorf("%d per %s cannot be counted exactly: write a rounder number or a window of whole seconds", l.Count, l.Window)
	}
	if !atMost(l.capacity()*scale, q, int64(maxRefill/time.Microsecond), p) {
		return fmt.Errorf("a burst of %d at %d per %s takes longer than ten years to refill: write a smaller burst", l.capacity(), l.Count, l.Window)
	}
	return nil
}

// Capacity is the most that can ever be granted at once: a bucket's burst, else the count.
func (l Limit) Capacity() int64 { return l.capacity() }

func (l *Limit) capacity() int64 {
	if l.Algorithm == TokenBucket && l.Burst > 0 {
		return l.Burst
	}
	return l.Count
}

func (l *Limit) window() int64 { return int64(l.Window / time.Microsecond) }

// rate is how fast a bucket drains, as p millionths of a unit in q microseconds; p × q stays below maxExact for every
// valid limit.
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
	if !atMost(p, q, maxExact, 1) {
		g := gcd(p, q)
		p, q = p/g, q/g
	}
	return p, q
}
