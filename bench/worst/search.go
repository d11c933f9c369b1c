package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	poolSize = 6
	// patience is how many genomes are tried without a better one for the pool before it starts anew.
	patience = 60
	// heavyShare is the part of the time that may go into preparations that take long.
	heavyShare = 0.5
	light      = 100 * time.Millisecond // of preparation
	heavy      = 3 * time.Second
)

// found is a genome and what its requests took.
type found struct {
	genome
	samples []sample
}

// median returns that of the slowest call.
func (f *found) median() paired.Median {
	values := make([]float64, len(f.samples))
	for i, s := range f.samples {
		values[i] = s.Slowest
	}
	return paired.Of(values)
}

// least returns the slowest call of the request that was disturbed least.
func (f *found) least() float64 {
	return slices.MinFunc(f.samples, func(a, b sample) int { return int(a.Slowest - b.Slowest) }).Slowest
}

// search looks for the slowest script call.
type search struct {
	stage  *stage
	source *source
	most   int // charges
	length time.Duration

	start     time.Time
	heavyTime time.Duration
	// Requests that are prepared quickly and those that take long have pools of their own: the former could not compete.
	light, heavy pool
	worst        map[string]*found // by shape, each measured repeatedly
	best         float64
	tried        int
	failures     map[string]int
}

// run searches for a while, beginning with some requests that are measured already.
func (s *search) run(from []*found) {
	s.worst, s.failures, s.start = map[string]*found{}, map[string]int{}, time.Now()
	for _, f := range from {
		p := &s.light
		if s.stage.predict(&f.genome) > light {
			p = &s.heavy
		}
		p.join(f)
		s.note(f)
	}
	for time.Since(s.start) < s.length || s.tried < 2 {
		p, budget := &s.light, light
		if s.heavyTime.Seconds() < heavyShare*time.Since(s.start).Seconds() {
			p, budget = &s.heavy, heavy
		}
		begun := time.Now()
		s.try(s.next(p, budget), p)
		if p == &s.heavy {
			s.heavyTime += time.Since(begun)
		}
		if p.stale > patience {
			s.restart(p)
		}
	}
}

// next draws a genome whose preparation takes at most so long.
func (s *search) next(p *pool, budget time.Duration) genome {
	to := bounds{s.most, float64(budget.Microseconds()), s.stage.prices}
	draw := func() genome { return p.found[min(s.source.IntN(len(p.found)), s.source.IntN(len(p.found)))].genome }
	switch {
	case len(p.found) < poolSize/2 || s.source.chance(15):
		return s.source.genome(to)
	case s.source.chance(12):
		return s.source.cross(draw(), draw(), to)
	default:
		return s.source.mutate(draw(), to)
	}
}

// restart empties a pool. The heavy one may begin with the worst of each shape instead.
func (s *search) restart(p *pool) {
	*p = pool{}
	if p == &s.heavy && s.source.chance(50) {
		p.found = s.ranked()[:min(poolSize, len(s.worst))]
	}
}

// ranked returns the worst of each shape, the slowest first.
func (s *search) ranked() []*found {
	return slices.SortedFunc(maps.Values(s.worst), func(a, b *found) int { return int(b.median().Value - a.median().Value) })
}

// try measures a genome: once more if it is slow for its pool, and repeatedly if it may be a record.
func (s *search) try(g genome, p *pool) {
	s.tried++
	f := &found{genome: g}
	for range 2 {
		samples, err := s.stage.try(&g, 1, false)
		if err != nil {
			s.failed(g, err)
			return
		}
		f.samples = append(f.samples, samples...)
		if !p.slow(f) {
			p.stale++
			return
		}
	}
	p.stale = 0
	p.join(f)
	if s.promising(f) {
		s.verify(f)
	}
}

// promising reports whether a request may be a record, or the worst of its shape and not far from one.
func (s *search) promising(f *found) bool {
	least := f.least()
	if least > 0.9*s.best {
		return true
	}
	known := s.worst[f.shape()]
	return least > 0.05*s.best && (known == nil || least > known.median().Value)
}

// verify measures what may be a record again: a single sample may have been disturbed.
func (s *search) verify(f *found) {
	samples, err := s.stage.try(&f.genome, s.stage.repeats(&f.genome), false)
	if err != nil {
		s.failed(f.genome, err)
		return
	}
	f.samples = samples
	if !s.note(f) {
		return
	}
	s.stage.measureYardstick(50)
	fmt.Printf("%s  %9s (min %s), %.0f × the yardstick: %v\n", clock(time.Since(s.start)),
		readable(s.best), readable(f.least()), s.best/s.stage.yard(), f.genome)
}

// note keeps what is the worst of its shape, and reports whether it is a record.
func (s *search) note(f *found) bool {
	shape, median := f.shape(), f.median().Value
	if median == 0 { // too fast to be logged
		return false
	}
	if known := s.worst[shape]; known == nil || median > known.median().Value {
		s.worst[shape] = f
	}
	if median <= s.best {
		return false
	}
	s.best = median
	return true
}

// simplify leaves out what does not make a request slow, for so long at most.
func (s *search) simplify(f *found, length time.Duration) *found {
	begun, enough := time.Now(), 0.9*f.least()
next:
	for time.Since(begun) < length {
		for _, g := range f.simpler() {
			samples, err := s.stage.try(&g, 2, false)
			testenv.NoError(s.stage, err)
			if one := (&found{g, samples}); one.least() >= enough {
				f = one
				continue next
			}
			if time.Since(begun) > length {
				break
			}
		}
		break
	}
	return f
}

// failed notes requests that the store could not decide, which is a finding of another kind, and goes on unless all fail.
func (s *search) failed(g genome, err error) {
	text := err.Error()
	if s.failures[text]++; s.failures[text] == 1 {
		fmt.Printf("%s  the store could not decide %v\n           %v\n", clock(time.Since(s.start)), g, err)
	}
	if s.tried >= 10 && len(s.worst) == 0 {
		s.stage.Fatalf("no request could be measured: %v", err)
	}
}

// pool is the slowest requests so far, from which others are made.
type pool struct {
	found []*found // the slowest first
	stale int      // how many were tried since the last that joined
}

// slow reports whether a request is slow enough for the pool.
func (p *pool) slow(f *found) bool {
	return f.least() > 0 && (len(p.found) < poolSize || f.least() > p.found[poolSize-1].least())
}

// join puts a request into the pool.
func (p *pool) join(f *found) {
	p.found = append(p.found, f)
	slices.SortStableFunc(p.found, func(a, b *found) int { return int(b.least() - a.least()) })
	p.found = p.found[:min(poolSize, len(p.found))]
}
