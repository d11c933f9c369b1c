// Command adversary attacks Headgate in its default mode, with several processes on one real Redis, and judges the recorded
// histories with a model that shares no code with Headgate. It prints a line for each scenario and fails if a promise was
// broken.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerFlag {
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	short := flag.Bool("short", false, "fewer runs of each scenario")
	only := flag.String("only", "", "run only scenarios whose name contains `text`")
	seed := flag.Uint64("seed", 0, "random `seed`, to repeat a run; 0 chooses one")
	length := flag.Duration("for", 0, "repeat all scenarios with new seeds for this long")
	check := flag.String("check", "", "only judge the history in `file`")
	flag.Parse()
	suite.Main(func(scope *suite.Scope) int {
		if *check != "" {
			return judgeFile(scope, *check, 0)
		}
		chosen, err := choose(*only)
		testenv.NoError(scope, err)
		return run(scope, chosen, cmp.Or(*seed, rand.Uint64N(1_000_000)), *length, *short)
	})
}

// run runs each scenario, and repeats all with the next seed until length has passed.
func run(scope *suite.Scope, chosen []scenario, seed uint64, length time.Duration, short bool) (findings int) {
	testenv.NoError(scope, os.MkdirAll(out, 0o755))
	headgate := sync.OnceValue(func() string { return testenv.BuildHeadgate(scope) })
	var building sync.WaitGroup
	defer building.Wait()
	if slices.ContainsFunc(chosen, func(s scenario) bool { return s.served }) {
		building.Go(func() { headgate() })
	}
	began, runs, last := time.Now(), 0, seed
	for ; runs < len(chosen) || time.Since(began) < length; runs++ {
		last = seed + uint64(runs/len(chosen))
		findings += attack(scope, chosen[runs%len(chosen)], last, short, headgate)
	}
	fmt.Printf("adversary: %d findings in %d runs of %d scenarios, seeds %d to %d, %.0f s\n", findings, runs, len(chosen), seed, last,
		time.Since(began).Seconds())
	return findings
}

// choose returns the scenarios whose names contain text.
func choose(text string) (chosen []scenario, err error) {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
		if strings.Contains(s.name, text) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		err = fmt.Errorf("-only %q: no scenario matches: must be part of one of %s", text, strings.Join(names, ", "))
	}
	return chosen, err
}

// maxShown is the number of findings of a scenario to print; -check on the history finds them all.
const maxShown = 12

// judgeFile judges a history and prints the verdict: one line, followed by the findings.
func judgeFile(scope *suite.Scope, path string, elapsed time.Duration) (findings int) {
	header, records, err := judge.Read(path)
	testenv.NoError(scope, err)
	v := judge.Judge(header, records)
	word := "PASS"
	if len(v.Findings) > 0 {
		word = "FAIL"
	}
	fmt.Printf("%s %s, seed %d, %.1f s: %s\n", word, header.Scenario, header.Seed, elapsed.Seconds(), strings.Join(v.Figures, "; "))
	for i, f := range v.Findings {
		if i == maxShown {
			fmt.Printf("     and %d more\n", len(v.Findings)-maxShown)
			break
		}
		fmt.Printf("     %s\n", f)
	}
	return len(v.Findings)
}
