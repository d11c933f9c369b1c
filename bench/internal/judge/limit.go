package judge

import "fmt"

// Algorithms of a limit, named as in rules.
const (
	TokenBucket   = "token_bucket"
	LeakyBucket   = "leaky_bucket"
	FixedWindow   = "fixed_window"
	SlidingWindow = "sliding_window"
	SlidingLog    = "sliding_log"
	// Concurrency limits the units in use at a time. Its window is the lease.
	Concurrency = "concurrency"
)

// Limit is the number of units allowed per window.
type Limit struct {
	Algorithm string `json:"algorithm"`
	Count     int64  `json:"count"`
	Window    int64  `json:"window_us"`
	// Burst is the capacity of a token bucket; 0 means Count.
	Burst int64 `json:"burst,omitempty"`
	// Clock aligns fixed windows to multiples of Window since 1970 instead of to their first charge.
	Clock bool `json:"clock,omitempty"`
	// MaxDelay is the longest wait in a leaky bucket's queue.
	MaxDelay int64 `json:"max_delay_us,omitempty"`
	// AnchorDay makes a fixed window a calendar month that begins on this day.
	AnchorDay int `json:"anchor_day,omitempty"`
}

// String returns a readable form of the limit.
func (l Limit) String() string {
	text := fmt.Sprintf("%s %d per %gs", l.Algorithm, l.Count, float64(l.Window)/1e6)
	if l.Burst > 0 {
		text += fmt.Sprintf(" burst %d", l.Burst)
	}
	if l.Clock {
		text += " clock-aligned"
	}
	if l.MaxDelay > 0 {
		text += fmt.Sprintf(" delayed by at most %gs", float64(l.MaxDelay)/1e6)
	}
	if l.AnchorDay > 0 {
		text += fmt.Sprintf(" from day %d", l.AnchorDay)
	}
	return text
}

// Capacity returns the largest cost that the limit can grant at once.
func (l Limit) Capacity() int64 {
	if l.Algorithm == TokenBucket && l.Burst > 0 {
		return l.Burst
	}
	return l.Count
}

// maximum returns the units that a new counter may admit in a span of time that begins with its first charge.
func (l Limit) maximum(span int64) int64 {
	switch l.Algorithm {
	case TokenBucket:
		return l.Capacity() + span*l.Count/l.Window
	case FixedWindow:
		windows := span/l.Window + 1
		if l.Clock {
			windows++
		}
		return windows * l.Count
	default:
		return (span/l.Window + 1) * l.Count
	}
}

// counter is a limit's counter in a limiter without any caching.
type counter interface {
	// wait returns how long a charge must wait, from now, until it is allowed: 0 if it is allowed now, -1 if it never is.
	wait(now, cost int64) int64
	// add records a charge.
	add(now, cost int64)
}

// newCounter returns an unused counter.
func (l Limit) newCounter() counter {
	switch l.Algorithm {
	case TokenBucket:
		return &bucket{limit: l}
	case FixedWindow:
		return &fixed{limit: l}
	case SlidingWindow:
		return &sliding{limit: l}
	default:
		return &log{limit: l}
	}
}

// bucket keeps its level in units × window in microseconds, so that it drains by an integer each microsecond.
type bucket struct {
	limit Limit
	level int64
	at    int64
}

func (b *bucket) now(now int64) int64 {
	if elapsed := now - b.at; elapsed > b.level/b.limit.Count {
		return 0
	}
	return b.level - (now-b.at)*b.limit.Count
}

func (b *bucket) wait(now, cost int64) int64 {
	if cost > b.limit.Capacity() {
		return -1
	}
	over := b.now(now) + (cost-b.limit.Capacity())*b.limit.Window
	return max(0, ceil(over, b.limit.Count))
}

func (b *bucket) add(now, cost int64) {
	b.level, b.at = b.now(now)+cost*b.limit.Window, now
}

// fixed counts in fixed windows.
type fixed struct {
	limit       Limit
	start, used int64
}

func (f *fixed) roll(now int64) {
	switch {
	case f.limit.Clock:
		if start := now - now%f.limit.Window; start != f.start {
			f.start, f.used = start, 0
		}
	case now >= f.start+f.limit.Window || f.used == 0:
		f.start, f.used = now, 0
	}
}

func (f *fixed) wait(now, cost int64) int64 {
	f.roll(now)
	switch {
	case cost > f.limit.Count:
		return -1
	case f.used+cost <= f.limit.Count:
		return 0
	}
	return f.start + f.limit.Window - now
}

func (f *fixed) add(now, cost int64) {
	f.roll(now)
	f.used += cost
}

// sliding weighs the previous window by the fraction of it that is within the last window's length.
type sliding struct {
	limit                 Limit
	start, used, previous int64
}

func (s *sliding) roll(now int64) {
	switch {
	case s.used+s.previous == 0 || now >= s.start+2*s.limit.Window:
		s.start, s.used, s.previous = now, 0, 0
	case now >= s.start+s.limit.Window:
		s.start, s.used, s.previous = s.start+s.limit.Window, 0, s.used
	}
}

func (s *sliding) wait(now, cost int64) int64 {
	s.roll(now)
	limit := s.limit
	if cost > limit.Count {
		return -1
	}
	end := s.start + limit.Window
	available := limit.Count - s.used - cost
	if available >= 0 {
		if s.previous == 0 {
			return 0
		}
		return max(0, end-available*limit.Window/s.previous-now)
	}
	return max(end, end+limit.Window-(limit.Count-cost)*limit.Window/s.used) - now
}

func (s *sliding) add(now, cost int64) {
	s.roll(now)
	s.used += cost
}

// log remembers every charge for a window's length.
type log struct {
	limit   Limit
	charges []charge
	used    int64
}

type charge struct{ at, cost int64 }

func (l *log) wait(now, cost int64) int64 {
	for len(l.charges) > 0 && l.charges[0].at+l.limit.Window <= now {
		l.used -= l.charges[0].cost
		l.charges = l.charges[1:]
	}
	if cost > l.limit.Count {
		return -1
	}
	over := l.used + cost - l.limit.Count
	if over <= 0 {
		return 0
	}
	for _, c := range l.charges {
		if over -= c.cost; over <= 0 {
			return c.at + l.limit.Window - now
		}
	}
	return -1 // unreachable: without charges every cost up to the limit is allowed
}

func (l *log) add(now, cost int64) {
	l.charges = append(l.charges, charge{now, cost})
	l.used += cost
}

// ceil divides and rounds up; b is above 0.
func ceil(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
