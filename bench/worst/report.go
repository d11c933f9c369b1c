package main

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/bench/internal/paired"
)

const (
	// maxMillis is what one script call may take: other callers wait for it.
	maxMillis = 2
	// maxRatio is the same in plain charges, of 8.5 µs where the aim was set: machines differ.
	maxRatio            = 235
	fewHolds, manyHolds = 10, 100_000
	// listed is how many of the worst requests are described.
	listed = 5
)

// report prints what was measured and judges it.
type report struct {
	stage     *stage
	worst     paired.Median
	few, many *heldBucket // many is nil if the store grants fewer holds
}

// line prints what a request took.
func (r *report) line(name string, got paired.Median, least float64) {
	fmt.Printf("%-62s %9s (min %s), %.0f × the yardstick\n", name, readable(got.Value), readable(least), got.Value/r.stage.yard())
	if got.Value > r.worst.Value {
		r.worst = got
	}
}

// cases measures the fixed cases and returns them as a start for the search.
func (r *report) cases() ([]*found, error) {
	var all []*found
	for _, c := range fixedCases() {
		samples, err := r.stage.try(&c.genome, r.stage.repeats(&c.genome), true)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		f := &found{c.genome, samples}
		r.line(c.name, f.median(), f.least())
		all = append(all, f)
	}
	return all, nil
}

// holds measures calls on buckets with holds.
func (r *report) holds() error {
	var buckets []*heldBucket
	for _, holds := range []int{fewHolds, 1_000, manyHolds} {
		b, err := r.stage.newHeldBucket(holds)
		if err != nil {
			return fmt.Errorf("%d holds: %w", holds, err)
		}
		if b.complete() {
			buckets = append(buckets, b)
			continue
		}
		fmt.Printf("a bucket with %s holds: skipped, the store grants %s\n", grouped(holds), grouped(len(b.held)))
	}
	if err := r.stage.measureHolds(buckets, 40); err != nil {
		return err
	}
	for _, b := range buckets {
		for _, c := range []struct {
			name string
			got  []float64
		}{{"plain charge", b.plain}, {"reserve", b.reserve}, {"commit", b.commit}, {"cancel", b.cancel}} {
			r.line(fmt.Sprintf("a bucket with %s holds: %s", grouped(b.size), c.name), paired.Of(c.got), slices.Min(c.got))
		}
		switch b.size {
		case fewHolds:
			r.few = b
		case manyHolds:
			r.many = b
		}
	}
	return nil
}

// found measures the worst of the search once more, so that no disturbance decides, and prints them as they are and as
// simple as they can be.
func (r *report) found(s *search, seed uint64) error {
	ranked := s.ranked()
	ranked = ranked[:min(listed, len(ranked))]
	for range 3 {
		if err := r.stage.measureYardstick(100); err != nil {
			return err
		}
	}
	fmt.Printf("\nthe worst of %d requests of %d shapes, seed %d; yardstick %s\n",
		s.tried, len(s.worst), seed, readable(r.stage.yard()))
	for i, f := range ranked {
		samples, err := r.stage.try(&f.genome, r.stage.repeats(&f.genome), true)
		if err != nil {
			return err
		}
		f := &found{f.genome, samples}
		r.line(fmt.Sprintf("%d.", i+1), f.median(), f.least())
		fmt.Printf("   %v\n", f.genome)
		simple, err := s.simplify(f, s.length/20)
		if err != nil {
			return err
		}
		if simple != f {
			fmt.Printf("   simpler, %s: %v\n", readable(simple.median().Value), simple.genome)
		}
	}
	for text, n := range s.failures {
		fmt.Printf("not decided, %d times: %s\n", n, text)
	}
	return nil
}

// judge returns how many aims were missed.
func (r *report) judge() int {
	fmt.Println()
	aims := &paired.Aims{}
	yard := r.stage.yard()
	over := func(m paired.Median, by float64) paired.Median {
		return paired.Median{Value: m.Value / by, Low: m.Low / by, High: m.High / by}
	}
	aims.AtMost("the worst script call, ms", over(r.worst, 1000), maxMillis)
	aims.AtMost("the worst script call ÷ the yardstick", over(r.worst, yard), maxRatio)
	if r.many == nil {
		fmt.Println("      100,000 holds ÷ 10 holds: not judged, the store grants fewer")
		return aims.Failed()
	}
	ratio := func(many, few []float64) paired.Median { return over(paired.Of(many), middle(few)) }
	aims.AtMost("reserve, 100,000 holds ÷ 10 holds", ratio(r.many.reserve, r.few.reserve), 2)
	aims.AtMost("commit, 100,000 holds ÷ 10 holds", ratio(r.many.commit, r.few.commit), 2)
	aims.AtMost("cancel, 100,000 holds ÷ 10 holds", ratio(r.many.cancel, r.few.cancel), 2)
	return aims.Failed()
}
