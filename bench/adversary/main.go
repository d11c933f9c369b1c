// Command adversary attacks Headgate in its default mode, with several processes on one real Redis, and has the recorded
// histories judged by a model that shares no code with it. It prints a line for each scenario and fails if a promise was
// broken.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// options are the flags.
type options struct {
	short     bool
	only      string
	seed      uint64
	length    time.Duration
	out       string
	check     string
	allowance float64
	strict    bool
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerFlag {
		if err := work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	var o options
	flag.BoolVar(&o.short, "short", false, "fewer runs of each scenario")
	flag.StringVar(&o.only, "only", "", "only scenarios with this `text` in their name")
	flag.Uint64Var(&o.seed, "seed", 0, "repeat the run with this `seed`; 0 draws one")
	flag.DurationVar(&o.length, "for", 0, "repeat all scenarios with new seeds for this long")
	flag.StringVar(&o.out, "out", filepath.Join("out", "adversary"), "write histories to this `directory`")
	flag.StringVar(&o.check, "check", "", "judge the history in this `file` again, and do nothing else")
	flag.Float64Var(&o.allowance, "allowance", 0.05, "by which `part` of its burst leases may let a token bucket exceed it")
	flag.BoolVar(&o.strict, "strict", false, "make the rules of workers strict: what is then still found has other causes than caching")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	findings, err := run(ctx, &o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if findings > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) (findings int, err error) {
	if o.check != "" {
		header, records, err := judge.Read(o.check)
		if err != nil {
			return 0, err
		}
		verdict := judge.Judge(header, records)
		report(header.Scenario, header.Seed, time.Duration(0), &verdict)
		return len(verdict.Findings), nil
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return 0, err
	}
	chosen, err := choose(o.only)
	if err != nil {
		return 0, err
	}
	a := newArena(o, chosen)
	defer a.close()
	seed := cmp.Or(o.seed, rand.Uint64N(1_000_000))
	began, runs, last := time.Now(), 0, seed
	for ; runs < len(chosen) || time.Since(began) < o.length; runs++ {
		s := chosen[runs%len(chosen)]
		last = seed + uint64(runs/len(chosen))
		n, err := a.attack(ctx, s, last)
		findings += n
		if err != nil {
			return findings, fmt.Errorf("%s, seed %d: %w", s.name, last, err)
		}
	}
	fmt.Printf("adversary: %d findings in %d runs of %d scenarios, seeds %d to %d, %.0f s\n", findings, runs, len(chosen), seed, last,
		time.Since(began).Seconds())
	return findings, nil
}

// choose returns the scenarios with a text in their names.
func choose(text string) (chosen []scenario, err error) {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
		if strings.Contains(s.name, text) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		err = fmt.Errorf("-only %q: no such scenario: must be part of one of %s", text, strings.Join(names, ", "))
	}
	return chosen, err
}

// maxShown is how many findings of a scenario are printed; the history has them all.
const maxShown = 12

// report prints a verdict: one line, and the findings below it.
func report(name string, seed uint64, took time.Duration, v *judge.Verdict) {
	word := "PASS"
	if len(v.Findings) > 0 {
		word = "FAIL"
	}
	fmt.Printf("%s %s, seed %d, %.1f s: %s\n", word, name, seed, took.Seconds(), strings.Join(v.Figures, "; "))
	for i, f := range v.Findings {
		if i == maxShown {
			fmt.Printf("     and %d more\n", len(v.Findings)-maxShown)
			break
		}
		fmt.Printf("     %s\n", f)
	}
}
