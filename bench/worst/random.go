package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// source draws random genomes, deterministically by its seed.
type source struct {
	*rand.Rand
	zones []*time.Location
}

func newSource(seed uint64) *source {
	s := &source{Rand: rand.New(rand.NewPCG(seed, 0)), zones: []*time.Location{nil}}
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Asia/Kolkata"} {
		if zone, err := time.LoadLocation(name); err == nil {
			s.zones = append(s.zones, zone)
		}
	}
	return s
}

func pick[T any](s *source, from ...T) T { return from[s.IntN(len(from))] }

// chance returns true with a probability in percent.
func (s *source) chance(percent int) bool { return s.IntN(100) < percent }

// upTo draws a number from 1 to a bound, with all orders of magnitude equally likely.
func (s *source) upTo(bound int) int {
	return int(math.Exp(s.Float64() * math.Log(float64(bound)+0.5)))
}

// percent draws a percentage, preferably 0 or 100.
func (s *source) percent() int { return pick(s, 0, 0, 100, 100, 50, s.IntN(101)) }

// genome draws a genome.
func (s *source) genome(to bounds) genome {
	g := genome{When: s.timing()}
	for range pick(s, 1, 1, 1, 2, 2, 3) {
		g.Blocks = append(g.Blocks, s.block(to))
	}
	g.fit(to)
	return g
}

func (s *source) timing() timing {
	return pick(s, atOnce, atOnce, atOnce, afterLapse, afterLapse, afterExpiry, afterCleanup)
}

func (s *source) block(to bounds) block {
	b := block{
		Counters: pick(s, 1, 1, s.upTo(to.charges)),
		Spread:   s.chance(50),
		Subject:  s.IntN(2),
		Limit:    s.limit(),
		MaxDelay: pick(s, 0, time.Second, 24*time.Hour),
		Used:     pick(s, 0, 10, 50, 99, 100, 100, 300),
		Credited: s.chance(20),
		Entries:  pick(s, 0, headgate.MaxLogCount, headgate.MaxLogCount, s.upTo(headgate.MaxLogCount)),
		HoldMix:  holdMix(s.IntN(int(holdMixes))),
		Lapsed:   s.percent(),
	}
	if s.chance(40) {
		b.Holds = pick(s, s.upTo(headgate.MaxHolds), headgate.MaxHolds-1)
	}
	if s.chance(25) {
		b.Others, b.OthersExpired = s.upTo(20_000), s.chance(50)
	}
	for range pick(s, 1, 1, 2, 3) {
		b.Charges = append(b.Charges, s.gene(to))
	}
	return b
}

func (s *source) gene(to bounds) gene {
	return gene{
		Kind:    kind(s.IntN(int(kinds))),
		Repeat:  pick(s, 1, 1, s.upTo(to.charges)),
		Cost:    pick(s, one, one, few, half, whole, over, largestCost),
		Partial: s.chance(15),
		Where:   s.percent(),
		Hold:    pick(s, time.Millisecond, time.Second, time.Minute, 10*time.Minute, headgate.MaxHold),
	}
}

// limit draws a valid limit.
func (s *source) limit() headgate.Limit {
	for {
		l := headgate.Limit{
			Algorithm: headgate.Algorithm(s.IntN(int(headgate.SlidingLog) + 1)),
			Count:     pick(s, 1, 10, 1_000, 1_000_000, headgate.MaxCost, int64(s.upTo(headgate.MaxCost))),
			Window:    pick(s, time.Millisecond, 100*time.Millisecond, time.Second, time.Minute, time.Hour, 366*24*time.Hour),
		}
		switch l.Algorithm {
		case headgate.TokenBucket:
			l.Burst = pick(s, 0, 1, l.Count, headgate.MaxCost)
		case headgate.FixedWindow:
			l.Align = pick(s, headgate.FromFirst, headgate.OnClock, headgate.OnClockSpread)
			if s.chance(40) {
				l.Window, l.Align = 0, headgate.FromFirst
				l.Calendar = pick(s, headgate.Minute, headgate.Hour, headgate.Day, headgate.Week, headgate.Month)
				l.TimeZone = pick(s, s.zones...)
				if l.Calendar == headgate.Month {
					l.AnchorDay = pick(s, 0, 15, 31)
				}
			}
		case headgate.SlidingLog:
			l.Count = pick(s, headgate.MaxLogCount, headgate.MaxLogCount, int64(s.upTo(headgate.MaxLogCount)))
		}
		if l.Validate() == nil {
			return l
		}
	}
}

// mutate returns the genome with one to three parts changed.
func (s *source) mutate(g genome, to bounds) genome {
	g = g.clone()
	for range pick(s, 1, 1, 2, 3) {
		i := s.IntN(len(g.Blocks))
		b, other := &g.Blocks[i], s.block(to)
		c := &b.Charges[s.IntN(len(b.Charges))]
		pick(s,
			func() { g.When = s.timing() },
			func() { g.Blocks = append(g.Blocks, other) },
			func() {
				if len(g.Blocks) > 1 {
					g.Blocks = slices.Delete(g.Blocks, i, i+1)
				}
			},
			func() { b.Limit = other.Limit },
			func() { s.scale(&b.Counters, to.charges) },
			func() { s.scale(&b.Counters, to.charges) },
			func() { b.Spread, b.Subject = other.Spread, other.Subject },
			func() { s.scale(&b.Entries, headgate.MaxLogCount) },
			func() { b.Used, b.Credited = other.Used, other.Credited },
			func() { s.scale(&b.Holds, headgate.MaxHolds-1) },
			func() { b.HoldMix = other.HoldMix },
			func() { g.When, b.Lapsed = s.timing(), other.Lapsed },
			func() { g.When, b.Others, b.OthersExpired = s.timing(), other.Others, other.OthersExpired },
			func() { b.Charges = append(b.Charges, other.Charges[0]) },
			func() { b.Charges = other.Charges },
			func() { *c = other.Charges[0] },
			func() { s.scale(&c.Repeat, to.charges) },
		)()
	}
	g.fit(to)
	return g
}

// scale increases or decreases a number, or sets it to the bound.
func (s *source) scale(n *int, bound int) {
	*n = min(bound, pick(s, *n*2, *n*2, *n+1, *n*5/4+1, *n/2, *n*3/4, bound, 1, 0))
}
