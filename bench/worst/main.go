// Command worst searches for the request that makes one script call take the most time in Redis, by mutation of the worst
// requests so far, and measures some requests by name beside it. What counts is the time that the server itself accounts
// for. It ends with a verdict for each aim and fails if one is missed.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/suite"
)

// maxCharges is how many charges a request has at most.
const maxCharges = 600

func main() {
	short := flag.Bool("short", false, "search for 1 minute instead of 5")
	seed := flag.Uint64("seed", 0, "`seed` of the search; 0 draws one")
	flag.Parse()
	length := 5 * time.Minute
	if *short {
		length = time.Minute
	}
	suite.Main(func(scope *suite.Scope) int {
		return run(scope, length, cmp.Or(*seed, uint64(time.Now().UnixNano())%1_000_000))
	})
}

func run(scope *suite.Scope, length time.Duration, seed uint64) (missed int) {
	stage := newStage(scope)
	for range 5 {
		stage.measureYardstick(100)
	}
	fmt.Printf("up to %d charges in a request, seed %d\n", maxCharges, seed)
	fmt.Printf("yardstick, a plain charge on one token bucket: %s\n\n", readable(stage.yard()))
	report := &report{stage: stage, suite: &paired.Suite{Scope: scope}}
	report.holds()
	cases := report.cases()
	fmt.Printf("\nsearch for %v\n", length)
	s := &search{stage: stage, source: newSource(seed), most: maxCharges, length: length}
	s.run(cases)
	report.found(s, seed)
	return report.judge()
}
