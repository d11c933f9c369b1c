package main

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate"
)

// source draws genomes. The same seed draws the same ones.
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

// chance is true in so many percent of cases.
func (s *source) chance(percent int) bool { return s.IntN(100) < percent }

// upTo draws from 1 to a bound, small and large orders of magnitude alike.
func (s *source) upTo(bound int) int {
	return int(math.Exp(s.Float64() * math.Log(float64(bound)+0.5)))
}

// percent prefers the ends.
func (s *source) percent() int { return pick(s, 0, 0, 100, 100, 50, s.IntN(101)) }

// genome draws any.
func (s *source) genome(to bounds) genome {
	g := genome{When: pick(s, atOnce, atOnce, atOnce, afterLapse, afterLapse, afterExpiry, afterCleanup)}
	for range pick(s, 1, 1, 1, 2, 2, 3) {
		g.Blocks = append(g.Blocks, s.block(to))
	}
	g.fit(to)
	return g
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
		Cost:    pick(s, one, one, few, half, whole, over, most),
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

// mutate returns the genome with one to three changes.
func (s *source) mutate(g genome, to bounds) genome {
	g = g.clone()
	for range pick(s, 1, 1, 2, 3) {
		s.change(&g, to)
	}
	g.fit(to)
	return g
}

// cross returns a genome with blocks of both.
func (s *source) cross(a, b genome, to bounds) genome {
	a, b = a.clone(), b.clone()
	g := genome{When: pick(s, a.When, b.When)}
	for _, from := range [][]block{a.Blocks, b.Blocks} {
		for i := range from {
			if i == 0 || s.chance(50) {
				g.Blocks = append(g.Blocks, from[i])
			}
		}
	}
	g.fit(to)
	return g
}

// scale makes a number larger or smaller, or the largest.
func (s *source) scale(n *int, bound int) {
	*n = min(bound, pick(s, *n*2, *n*2, *n+1, *n*5/4+1, *n/2, *n*3/4, *n-1, bound, 1, 0))
}

func (s *source) change(g *genome, to bounds) {
	i := s.IntN(len(g.Blocks))
	b := &g.Blocks[i]
	switch s.IntN(16) {
	case 0:
		g.When = timing(s.IntN(int(timings)))
	case 1:
		g.Blocks = append(g.Blocks, s.block(to))
	case 2:
		if len(g.Blocks) > 1 {
			g.Blocks = append(g.Blocks[:i], g.Blocks[i+1:]...)
		}
	case 3:
		b.Limit = s.limit()
	case 4, 5:
		s.scale(&b.Counters, to.charges)
	case 6:
		b.Spread, b.Subject = s.chance(50), s.IntN(2)
	case 7:
		s.scale(&b.Entries, headgate.MaxLogCount)
		b.Used = pick(s, 0, 10, 50, 99, 100, 300)
	case 8:
		s.scale(&b.Holds, headgate.MaxHolds-1)
	case 9:
		b.HoldMix = holdMix(s.IntN(int(holdMixes)))
		b.Credited = s.chance(20)
	case 10:
		b.Lapsed = s.percent()
		if b.Lapsed > 0 && g.When == atOnce {
			g.When = afterLapse
		}
	case 11:
		s.scale(&b.Others, 50_000)
		b.OthersExpired = s.chance(50)
		if b.OthersExpired && g.When == atOnce {
			g.When = afterExpiry
		}
	case 12:
		b.Charges = append(b.Charges, s.gene(to))
	case 13:
		if n := len(b.Charges); n > 1 {
			j := s.IntN(n)
			b.Charges = append(b.Charges[:j], b.Charges[j+1:]...)
		}
	default:
		s.changeGene(&b.Charges[s.IntN(len(b.Charges))], to)
	}
}

func (s *source) changeGene(c *gene, to bounds) {
	other := s.gene(to)
	switch s.IntN(6) {
	case 0:
		c.Kind = other.Kind
	case 1:
		c.Cost, c.Partial = other.Cost, other.Partial
	case 2:
		c.Where = other.Where
	case 3:
		c.Hold = other.Hold
	default:
		s.scale(&c.Repeat, to.charges)
	}
}
