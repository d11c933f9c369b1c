// Command worst searches for the request with the slowest script call in Redis, by mutating the worst requests so far, and
// measures some named requests. The measure is the time in the server's slow log. It ends with a verdict for each target and
// fails if one is missed.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/suite"
)

// maxCharges is the maximum number of charges of a request.
const maxCharges = 600

func main() {
	short := flag.Bool("short", false, "search for 1 minute instead of 5")
	seed := flag.Uint64("seed", 0, "random `seed`, to repeat a search; 0 chooses one")
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
	s := &search{stage: stage, source: newSource(seed), maxCharges: maxCharges, length: length}
	s.run(cases)
	report.found(s, seed)
	return report.judge()
}
