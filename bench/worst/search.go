package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
)

const (
	// poolSize is the number of slowest requests that are mutated.
	poolSize = 6
	// light and heavy are bounds of a preparation's steps. Light preparations are quick; the slowest calls need heavy ones.
	light, heavy = 5_000, 60_000
)

// found is a genome and the durations of its slowest call in microseconds.
type found struct {
	genome
	samples []float64
}

func (f *found) median() paired.Median { return paired.Of(f.samples) }

// least returns the smallest duration, which is the least disturbed.
func (f *found) least() float64 { return slices.Min(f.samples) }

// search searches for the slowest script call: it draws random requests and mutates the slowest so far.
type search struct {
	stage      *stage
	source     *source
	maxCharges int // of a request
	length     time.Duration

	start    time.Time
	pool     []*found // the slowest first
	best     float64
	tried    int
	failures map[string]int
}

// run searches for s.length, starting with requests that were already measured.
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
	to := bounds{s.maxCharges, pick(s.source, light, light, heavy)}
	if len(s.pool) == 0 || s.source.chance(30) {
		return s.source.genome(to)
	}
	n := len(s.pool)
	return s.source.mutate(s.pool[min(s.source.IntN(n), s.source.IntN(n))].genome, to)
}

// try measures a genome: again if it is slow, and repeatedly if it may be a record, as a single sample may have been disturbed.
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

// join adds a request to the pool.
func (s *search) join(f *found) {
	s.best = max(s.best, f.median().Value)
	s.pool = append(s.pool, f)
	slices.SortStableFunc(s.pool, func(a, b *found) int { return int(b.least() - a.least()) })
	s.pool = s.pool[:min(poolSize, len(s.pool))]
}

// failed records a request that the store could not decide, a finding of another kind. It ends the run if all requests fail.
func (s *search) failed(g *genome, err error) {
	text := err.Error()
	if s.failures[text]++; s.failures[text] == 1 {
		fmt.Printf("%5.1f s  the store could not decide %+v\n           %v\n", time.Since(s.start).Seconds(), *g, err)
	}
	if s.tried >= 10 && len(s.pool) == 0 {
		s.stage.Fatalf("no request could be measured: %v", err)
	}
}
