package paired

import (
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
)

// Suite is a run of a program that measures variants and judges targets.
type Suite struct {
	*suite.Scope
	Rounds int
	Slice  time.Duration

	verdicts []string
	missed   int
}

// Main parses the flags, runs a suite and prints a verdict for each target. It exits with status 2 if it could not measure and with 1
// if targets were missed. rounds and slice are defaults.
func Main(rounds int, slice time.Duration, run func(*Suite)) {
	s := &Suite{}
	flag.IntVar(&s.Rounds, "rounds", rounds, "number of slices of each variant")
	flag.DurationVar(&s.Slice, "slice", slice, "length of a slice")
	flag.Parse()
	suite.Main(func(scope *suite.Scope) int {
		s.Scope = scope
		run(s)
		return s.Report()
	})
}

// Report prints the verdicts and returns the number of missed targets.
func (s *Suite) Report() (missed int) {
	fmt.Println()
	for _, verdict := range s.verdicts {
		fmt.Println(verdict)
	}
	return s.missed
}

// Measure runs variants in turn, a slice per round, and prints medians and quartiles of each. The store's CPU has a column if it is
// measured separately.
func (s *Suite) Measure(title string, rounds int, slice time.Duration, variants []Variant) Samples {
	samples, err := run(variants, rounds, slice)
	if err != nil {
		s.Fatal(err)
	}
	fmt.Printf("\n%s, %d rounds of %s; medians and quartiles\n", title, rounds, slice)
	fmt.Printf("%-38s %28s %22s %22s", "", "calls/s", "client CPU µs", "server CPU µs")
	picks := []func(Sample) float64{ClientCPU, ServerCPU}
	if slices.ContainsFunc(variants, func(v Variant) bool { return v.StoreCPU != nil }) {
		fmt.Printf(" %22s", "store CPU µs")
		picks = append(picks, StoreCPU)
	}
	fmt.Println()
	for _, v := range variants {
		t := samples.Median(v.Name, Throughput)
		fmt.Printf("%-38s %9.0f (%7.0f–%7.0f)", v.Name, t.Value, t.Low, t.High)
		for _, pick := range picks {
			m := samples.Median(v.Name, pick)
			fmt.Printf(" %6.2f (%5.2f–%5.2f)", m.Value, m.Low, m.High)
		}
		fmt.Println()
	}
	return samples
}

// Note adds a median without a target to the verdicts.
func (s *Suite) Note(what string, got Median) {
	s.addVerdict("    ", what, got, "not judged")
}

// ExpectMaxValue expects a single number of at most maximum.
func (s *Suite) ExpectMaxValue(what string, got, maximum float64) {
	s.ExpectMax(what, Median{got, got, got}, maximum)
}

// ExpectMin expects a median of at least want.
func (s *Suite) ExpectMin(what string, got Median, want float64) {
	s.judge(what, got, "≥", want, got.Value >= want)
}

// ExpectMax expects a median of at most want.
func (s *Suite) ExpectMax(what string, got Median, want float64) {
	s.judge(what, got, "≤", want, got.Value <= want)
}

func (s *Suite) judge(what string, got Median, sign string, want float64, met bool) {
	verdict := "PASS"
	if !met {
		verdict = "FAIL"
		s.missed++
	}
	s.addVerdict(verdict, what, got, fmt.Sprintf("target %s %g", sign, want))
}

func (s *Suite) addVerdict(verdict, what string, got Median, target string) {
	s.verdicts = append(s.verdicts, fmt.Sprintf("%s  %-62s %8.2f (%.2f–%.2f), %s", verdict, what, got.Value, got.Low, got.High, target))
}
