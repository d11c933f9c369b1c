// Command regions runs three regions with real stores and servers, and an emulated network between them, which is slow, lossy and cut
// at times. Servers and stores are killed. From what callers in all regions see it judges whether the regions kept the limits that they
// share, and how much of the limits was of use. It prints a table for each seed and fails if a target is missed.
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	shortSeeds = 2
	longSeeds  = 20
)

func main() {
	short := flag.Bool("short", false, fmt.Sprintf("run %d seeds instead of %d", shortSeeds, longSeeds))
	seed := flag.Uint64("seed", 0, "run only the seed `n`")
	stores := flag.String("store", "", "use these `stores` in eu, us and ap, or one kind in all: redis, valkey, sentinel or cluster; default by seed")
	length := flag.Duration("length", 30*time.Second, "how `long` the load of each seed lasts")
	shared := flag.Bool("regions", true, "let the regions share their limits; without it, each applies them on its own, and the bounds must fail")
	flag.Parse()
	suite.Main(func(scope *suite.Scope) (missed int) {
		program := testenv.BuildHeadgate(scope)
		last := uint64(longSeeds)
		if *short {
			last = shortSeeds
		}
		first := uint64(1)
		if *seed > 0 {
			first, last = *seed, *seed
		}
		for s := first; s <= last && scope.Context().Err() == nil; s++ {
			plan, err := newPlan(s, *stores, *length, *shared)
			testenv.NoError(scope, err)
			plan.bounds = *short
			fmt.Printf("\nseed %d: %s\n\n", s, plan)
			r := suite.NewReport()
			if err := scope.Run(func(scope *suite.Scope) { run(scope, program, plan, r) }); err != nil {
				r.Line("run", suite.Judged(false, "%v", err)) // and continue with the next seed
			}
			if r.Missed > 0 {
				missed++
				fmt.Printf("\nseed %d: FAIL: %d rows; its history is in bench/%s, and ARGS='-seed %[1]d' repeats it\n", s, r.Missed, historyFile(s))
			} else {
				fmt.Printf("\nseed %d: PASS\n", s)
			}
		}
		if missed > 0 {
			fmt.Printf("\nFAIL: %d of %d seeds\n", missed, last-first+1)
		} else if scope.Context().Err() == nil {
			fmt.Printf("\nPASS: %d seeds\n", last-first+1)
		}
		return missed
	})
}
