package storewrap

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate"
)

// share is this node's fallback share of every limit: one part in nodes, times percent.
type share struct {
	nodes   int64
	rank    int64  // of this node among nodes, from 1; 0 if unknown
	salt    uint64 // of this node, for its random share if the rank is unknown
	percent int64
}

// scale returns a limit as this node counts it locally. The shares of all nodes add up to the limit. The remainder of the
// division goes to different nodes in each window if all nodes have the same windows, or if some nodes would otherwise have
// no units at all. In other cases it always goes to the same nodes, because a node whose share grew in the middle of a count
// would admit too much. ok is false if this node has no units now; wait is then the time until it may.
func (s *share) scale(c *headgate.Charge, now time.Time) (limit headgate.Limit, wait time.Duration, ok bool) {
	if limit, ok = s.scaleBucket(c); ok {
		return limit, 0, true
	}
	whole := *c
	if isBucket(&c.Limit) {
		whole.Limit = refillWindow(&c.Limit)
		if c.Limit.Count == 0 { // a region's share without units
			return whole.Limit, retryUnavailable, false
		}
	}
	start, end := windowAt(&whole, now)
	limit = whole.Limit
	if !onClock(&limit) && limit.Count*s.percent >= 100*s.nodes {
		start = 0
	}
	n := s.portion(c, start, limit.Count)
	limit.Count = max(1, n)
	if n == 0 {
		return limit, time.UnixMicro(end).Sub(now), false
	}
	return limit, 0, true
}

// scaleBucket returns a bucket with this node's share of the burst and of the rate, as the same count in a longer window. ok
// is false for other algorithms, and if the burst has less than one unit per node.
func (s *share) scaleBucket(c *headgate.Charge) (limit headgate.Limit, ok bool) {
	limit = c.Limit
	switch limit.Algorithm {
	case headgate.LeakyBucket:
	case headgate.TokenBucket:
		if c.Limit.Capacity()*s.percent < 100*s.nodes {
			return limit, false
		}
		limit.Burst = s.portion(c, 0, c.Limit.Capacity())
	default:
		return limit, false
	}
	for _, unit := range [...]time.Duration{time.Microsecond, time.Millisecond, time.Second} {
		longer, fits := mulDivUp(int64(c.Limit.Window), 100*s.nodes, s.percent*int64(unit))
		if limit.Window = time.Duration(longer) * unit; fits && longer <= int64(maxWindow/unit) && limit.Validate() == nil {
			return limit, true
		}
	}
	return limit, false
}

// refillWindow returns the fixed window in which a bucket refills its capacity; any window if it never refills.
func refillWindow(l *headgate.Limit) headgate.Limit {
	us, _ := mulDivUp(l.Window.Microseconds(), l.Capacity(), l.Count)
	window := min(max(time.Duration(us)*time.Microsecond, minWindow), maxWindow)
	count, _ := mulDivUp(window.Microseconds(), l.Count, l.Window.Microseconds())
	return headgate.Limit{
		Algorithm: headgate.FixedWindow, Align: headgate.OnClock, Window: window, Count: min(max(1, count), headgate.MaxCost),
	}
}

const (
	minWindow = time.Millisecond
	maxWindow = 366 * 24 * time.Hour
)

// mulDivUp returns a × b ÷ c rounded up, and false if the result is longer than the longest window.
func mulDivUp(a, b, c int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return int64(maxWindow), false
	}
	q, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		q++
	}
	if q > uint64(maxWindow) {
		return int64(maxWindow), false
	}
	return int64(q), true
}

// portion returns this node's part of total, in a window of a counter. If nodes know their ranks, they agree on which of them
// gets the remainder. If not, each draws at random.
func (s *share) portion(c *headgate.Charge, window, total int64) int64 {
	common := hash(0, c.Subject, c.Counter, window)
	total *= s.percent
	units := total / 100
	if int64(common>>32%100) < total%100 {
		units++
	}
	if s.rank == 0 || s.rank > s.nodes {
		portion := units / s.nodes
		if int64(hash(s.salt, c.Subject, c.Counter, window)%uint64(s.nodes)) < units%s.nodes {
			portion++
		}
		return portion
	}
	place := (s.rank - 1 + int64(common%uint64(s.nodes))) % s.nodes
	return (place+1)*units/s.nodes - place*units/s.nodes
}

// seed returns the charge with which this node's count starts where the store's ended: its share of the used units, in the
// same window. Its cost is 0 if nothing is known.
func (s *share) seed(c *headgate.Charge, scaled headgate.Limit, remaining int64, lasts time.Duration) headgate.Charge {
	seed := headgate.Charge{Subject: c.Subject, Counter: c.Counter, Limit: scaled, Force: true}
	if lasts <= 0 {
		return seed
	}
	whole := &c.Limit
	if isBucket(whole) {
		level := float64(whole.Count) * float64(lasts) / float64(whole.Window)
		seed.Cost = s.portion(c, 1, min(int64(level+0.5), 4*headgate.MaxCost))
		return seed
	}
	seed.Cost = max(0, scaled.Capacity()-s.portion(c, 1, remaining))
	switch {
	case whole.Algorithm == headgate.SlidingWindow:
		seed.Age = 2*whole.Window - lasts
		if lasts <= whole.Window { // the units are in the previous window, of which only a part still counts
			seed.Cost = min(headgate.MaxCost, int64(float64(seed.Cost)*float64(whole.Window)/float64(lasts)))
		}
	case whole.Algorithm == headgate.SlidingLog || whole.Calendar == headgate.NoCalendar && whole.Align == headgate.FromFirst:
		seed.Age = whole.Window - lasts
	}
	return seed
}

// isBucket reports whether a limit is a token bucket or a leaky bucket.
func isBucket(l *headgate.Limit) bool {
	return l.Algorithm == headgate.TokenBucket || l.Algorithm == headgate.LeakyBucket
}

// onClock reports whether a limit has the same windows on every node.
func onClock(l *headgate.Limit) bool {
	return l.Algorithm == headgate.FixedWindow && (l.Align == headgate.OnClock || l.Calendar != headgate.NoCalendar)
}

// windowAt returns the window by which shares are assigned: the limit's own calendar window, or one aligned to the clock.
func windowAt(c *headgate.Charge, now time.Time) (start, end int64) {
	aligned := *c
	if c.Limit.Calendar == headgate.NoCalendar {
		aligned.Limit = headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Window: c.Limit.Window, Align: headgate.OnClock}
	}
	terms, _ := aligned.Terms(now)
	return terms.Start, terms.End
}
