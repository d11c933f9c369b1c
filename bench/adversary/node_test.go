package main

import (
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// TestToLimit: nodes apply the same limits as the judge.
func TestToLimit(t *testing.T) {
	for _, algorithm := range []string{judge.TokenBucket, judge.FixedWindow, judge.SlidingWindow, judge.SlidingLog} {
		l := toLimit(judge.Limit{Algorithm: algorithm, Count: 7, Window: 1_500_000})
		if l.Algorithm.String() != algorithm || l.Count != 7 || l.Window != 1500*time.Millisecond {
			t.Errorf("%s is %v", algorithm, l)
		}
		if err := l.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestScenarios: each scenario can be chosen by its name.
func TestScenarios(t *testing.T) {
	for _, s := range scenarios() {
		if chosen, err := choose(s.name); err != nil || len(chosen) != 1 {
			t.Errorf("%s: %d scenarios, %v", s.name, len(chosen), err)
		}
	}
	if _, err := choose("nothing"); err == nil {
		t.Error("choose accepts an unknown scenario")
	}
}
