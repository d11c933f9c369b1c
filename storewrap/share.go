package storewrap

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/headgate/headgate"
)

// share is this node's part of all limits: one of so many nodes, or less.
type share struct {
	salt    uint64 // another on each node
	nodes   int64
	percent int64
}

// fraction of a number that is this node's.
func (s *share) fraction(n int64) float64 {
	return float64(n) * float64(s.percent) / float64(100*s.nodes)
}

// of is a limit as this node counts it by itself. What is no whole number is drawn, by node, subject and window: of 20 nodes
// with a limit of 5 it is five at a time, more or less, and others in the next window; it is neither none of them nor all.
// It is false if this node has no part for now, and then says when to draw again.
func (s *share) of(c *headgate.Charge, now time.Time) (limit headgate.Limit, wait time.Duration, ok bool) {
	limit = c.Limit
	part := s.fraction(limit.Count)
	bucket := isBucket(&limit)
	if bucket && part >= 1 {
		// The rate is exact: as much in a longer time.
		if longer := time.Duration(float64(limit.Window) * float64(limit.Count) / part); part < 1_000 && longer < maxWindow {
			limit.Window = longer
		} else {
			limit.Count = int64(part)
		}
		if limit.Algorithm == headgate.TokenBucket {
			limit.Burst = max(1, s.draw(c, 0, s.fraction(c.Limit.Capacity())))
		}
		return limit, 0, true
	}
	start, end := s.window(c, now)
	n := s.draw(c, start, part)
	if bucket {
		limit = headgate.Limit{Algorithm: headgate.FixedWindow, Window: c.Limit.Window, Align: headgate.OnClock}
	}
	limit.Count = max(1, n)
	if n == 0 {
		return limit, time.UnixMicro(end).Sub(now), false
	}
	return limit, 0, true
}

// seed is the charge that makes this node's count begin where the store's ended: with its share of what was used, and in the
// same window. It is of no units if nothing is known.
func (s *share) seed(c *headgate.Charge, scaled headgate.Limit, remaining int64, lasts time.Duration) headgate.Charge {
	seed := headgate.Charge{Subject: c.Subject, Counter: c.Counter, Limit: scaled, Force: true}
	if lasts <= 0 {
		return seed
	}
	whole := &c.Limit
	if isBucket(whole) {
		level := float64(whole.Count) * float64(lasts) / float64(whole.Window)
		seed.Cost = s.draw(c, 1, level*s.fraction(1))
		return seed
	}
	seed.Cost = max(0, scaled.Capacity()-s.draw(c, 1, s.fraction(remaining)))
	switch {
	case whole.Algorithm == headgate.SlidingWindow:
		seed.Age = 2*whole.Window - lasts
		if lasts <= whole.Window { // it is the window before, of which only a part still weighs
			seed.Cost = min(headgate.MaxCost, int64(float64(seed.Cost)*float64(whole.Window)/float64(lasts)))
		}
	case whole.Algorithm == headgate.SlidingLog || whole.Calendar == headgate.NoCalendar && whole.Align == headgate.FromFirst:
		seed.Age = whole.Window - lasts
	}
	return seed
}

func isBucket(l *headgate.Limit) bool {
	return l.Algorithm == headgate.TokenBucket || l.Algorithm == headgate.LeakyBucket
}

const maxWindow = 366 * 24 * time.Hour

// window is when this node draws: for each window of the clock, or of the calendar.
func (s *share) window(c *headgate.Charge, now time.Time) (start, end int64) {
	aligned := *c
	if c.Limit.Calendar == headgate.NoCalendar {
		aligned.Limit = headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Window: c.Limit.Window, Align: headgate.OnClock}
	}
	terms, _ := aligned.Terms(now)
	return terms.Start, terms.End
}

// draw makes a whole number of one that need not be: the next above as often as it is near to that.
func (s *share) draw(c *headgate.Charge, window int64, part float64) int64 {
	whole := math.Floor(part)
	if chance := part - whole; float64(hash(s.salt, c, window))/(1<<64) < chance {
		whole++
	}
	return int64(whole)
}

// hash is a number that looks random, and is the same for the same counter and window.
func hash(salt uint64, c *headgate.Charge, window int64) uint64 {
	h := salt ^ uint64(c.Counter)
	for _, word := range [...]uint64{
		binary.LittleEndian.Uint64(c.Subject[:]), binary.LittleEndian.Uint64(c.Subject[8:]), uint64(window),
	} {
		h = (h ^ word) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}
