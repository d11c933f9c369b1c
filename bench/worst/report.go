package main

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	// maxMillis is the maximum duration of one script call, for which other callers wait.
	maxMillis = 2
	// maxRatio is the same in plain charges, which took 8.5 µs where the target was set: machines differ.
	maxRatio            = 235
	fewHolds, manyHolds = 10, 100_000
)

// report prints the measurements and judges them.
type report struct {
	suite     *paired.Suite
	stage     *stage
	worst     paired.Median
	few, many *heldBucket
}

// line prints the duration of a request.
func (r *report) line(name string, got paired.Median, least float64) {
	fmt.Printf("%-62s %9s (min %s), %.0f × the yardstick\n", name, readable(got.Value), readable(least), got.Value/r.stage.yard())
	if got.Value > r.worst.Value {
		r.worst = got
	}
}

// measure measures a request repeatedly and prints it.
func (r *report) measure(name string, g *genome) *found {
	samples, err := r.stage.try(g, r.stage.repeats(g), coarse, fine)
	testenv.NoError(r.stage, err)
	f := &found{*g, samples}
	r.line(name, f.median(), f.least())
	return f
}

// cases measures the fixed cases and returns them as the initial pool of the search.
func (r *report) cases() (all []*found) {
	for _, c := range fixedCases() {
		all = append(all, r.measure(c.name, &c.genome))
	}
	return all
}

// holds measures calls on buckets with holds.
func (r *report) holds() {
	r.few, r.many = r.stage.newHeldBucket(fewHolds), r.stage.newHeldBucket(manyHolds)
	buckets := []*heldBucket{r.few, r.stage.newHeldBucket(1_000), r.many}
	r.stage.measureHolds(buckets, 40)
	for _, b := range buckets {
		for _, c := range []struct {
			name string
			got  []float64
		}{{"plain charge", b.plain}, {"reserve", b.reserve}, {"commit", b.commit}, {"cancel", b.cancel}} {
			r.line(fmt.Sprintf("a bucket with %d holds: %s", b.size, c.name), paired.Of(c.got), slices.Min(c.got))
		}
	}
}

// found measures the worst requests of the search again, to rule out disturbances, and prints them.
func (r *report) found(s *search, seed uint64) {
	for range 3 {
		r.stage.measureYardstick(100)
	}
	fmt.Printf("\nthe worst of %d requests, seed %d; yardstick %s\n", s.tried, seed, readable(r.stage.yard()))
	for i, f := range s.pool {
		r.measure(fmt.Sprintf("%d.", i+1), &f.genome)
		fmt.Printf("   %+v\n", f.genome)
	}
	for text, n := range s.failures {
		fmt.Printf("failed %d times: %s\n", n, text)
	}
}

// judge judges the targets and returns the number of missed ones.
func (r *report) judge() int {
	over := func(m paired.Median, by float64) paired.Median {
		return paired.Median{Value: m.Value / by, Low: m.Low / by, High: m.High / by}
	}
	r.suite.ExpectMax("the worst script call, ms", over(r.worst, 1000), maxMillis)
	r.suite.ExpectMax("the worst script call ÷ the yardstick", over(r.worst, r.stage.yard()), maxRatio)
	ratio := func(many, few []float64) paired.Median { return over(paired.Of(many), middle(few)) }
	r.suite.ExpectMax("reserve, 100,000 holds ÷ 10 holds", ratio(r.many.reserve, r.few.reserve), 2)
	r.suite.ExpectMax("commit, 100,000 holds ÷ 10 holds", ratio(r.many.commit, r.few.commit), 2)
	r.suite.ExpectMax("cancel, 100,000 holds ÷ 10 holds", ratio(r.many.cancel, r.few.cancel), 2)
	return r.suite.Report()
}

// readable formats microseconds with three significant digits.
func readable(micros float64) string {
	if micros < 1000 {
		return fmt.Sprintf("%.3g µs", micros)
	}
	return fmt.Sprintf("%.3g ms", micros/1000)
}
