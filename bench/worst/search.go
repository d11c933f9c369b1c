package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
)

const (
	// poolSize is from how many of the slowest requests others are made.
	poolSize = 6
	// light and heavy are bounds of a preparation's steps. Light ones are tried quickly; the slowest calls need heavy ones.
	light, heavy = 5_000, 60_000
)

// found is a genome and how many microseconds its slowest call took, each time.
type found struct {
	genome
	samples []float64
}

func (f *found) median() paired.Median { return paired.Of(f.samples) }

// least returns the time that was disturbed least.
func (f *found) least() float64 { return slices.Min(f.samples) }

// search looks for the slowest script call: it draws requests, and changes the slowest so far.
type search struct {
	stage  *stage
	source *source
	most   int // charges
	length time.Duration

	start    time.Time
	pool     []*found // the slowest first
	best     float64
	tried    int
	failures map[string]int
}

// run searches for a while, beginning with some requests that are measured already.
func (s *search) run(from []*found) {
	s.failures, s.start = map[string]int{}, time.Now()
	for _, f := range from {
		s.join(f)
	}
	for time.Since(s.start) < s.length || s.tried < 2 {
		g := s.next()
		s.tried++
		if err := s.try(&g); err != nil {
			s.failed(&g, err)
		}
	}
}

func (s *search) next() genome {
	to := bounds{s.most, pick(s.source, light, light, heavy)}
	if len(s.pool) == 0 || s.source.chance(30) {
		return s.source.genome(to)
	}
	n := len(s.pool)
	return s.source.mutate(s.pool[min(s.source.IntN(n), s.source.IntN(n))].genome, to)
}

// try measures a genome: once more if it is slow, and repeatedly if it may be a record, as a single sample may have been disturbed.
func (s *search) try(g *genome) error {
	f := &found{genome: *g}
	for range 2 {
		samples, err := s.stage.try(g, 1, coarse)
		if err != nil {
			return err
		}
		if f.samples = append(f.samples, samples...); !s.slow(f) {
			return nil
		}
	}
	if f.least() > 0.9*s.best {
		samples, err := s.stage.try(g, s.stage.repeats(g), coarse)
		if err != nil {
			return err
		}
		f.samples = samples
	}
	before := s.best
	if s.join(f); s.best > before {
		s.stage.measureYardstick(50)
		fmt.Printf("%5.1f s  %9s (min %s), %.0f × the yardstick: %+v\n", time.Since(s.start).Seconds(),
			readable(s.best), readable(f.least()), s.best/s.stage.yard(), f.genome)
	}
	return nil
}

// slow reports whether a request is slow enough for the pool.
func (s *search) slow(f *found) bool {
	return f.least() > 0 && (len(s.pool) < poolSize || f.least() > s.pool[poolSize-1].least())
}

// join puts a request into the pool.
func (s *search) join(f *found) {
	s.best = max(s.best, f.median().Value)
	s.pool = append(s.pool, f)
	slices.SortStableFunc(s.pool, func(a, b *found) int { return int(b.least() - a.least()) })
	s.pool = s.pool[:min(poolSize, len(s.pool))]
}

// failed notes requests that the store could not decide, which is a finding of another kind, and goes on unless all fail.
func (s *search) failed(g *genome, err error) {
	text := err.Error()
	if s.failures[text]++; s.failures[text] == 1 {
		fmt.Printf("%5.1f s  the store could not decide %+v\n           %v\n", time.Since(s.start).Seconds(), *g, err)
	}
	if s.tried >= 10 && len(s.pool) == 0 {
		s.stage.Fatalf("no request could be measured: %v", err)
	}
}
