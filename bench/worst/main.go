// Command worst searches for the request that makes one script call take the most time in Redis, by mutation of the worst
// requests so far, and measures some requests by name beside it. What counts is the time that the server itself accounts
// for. It ends with a verdict for each aim and fails if one is missed.
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

// maxCharges is how many charges a request has at most, if the store accepts as many.
const maxCharges = 600

func main() {
	var o options
	flag.BoolVar(&o.short, "short", false, "search for 60s only, unless -for is given")
	flag.Uint64Var(&o.seed, "seed", 0, "`seed` of the search; 0 draws one")
	flag.DurationVar(&o.length, "for", 0, "how long to search (default 5m)")
	valkey := flag.Bool("valkey", false, "measure Valkey instead of Redis")
	flag.Parse()
	o.engine = testenv.Redis
	if *valkey {
		o.engine = testenv.Valkey
	}
	scope := &paired.Scope{}
	failed, err := run(scope, o)
	scope.Exit(failed, err)
}

type options struct {
	engine testenv.Engine
	seed   uint64
	short  bool
	length time.Duration
}

// complete fills in the defaults.
func (o *options) complete() {
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	switch {
	case o.length > 0:
	case o.short:
		o.length = time.Minute
	default:
		o.length = 5 * time.Minute
	}
}

func run(scope *paired.Scope, o options) (failed int, err error) {
	o.complete()
	stage, err := newStage(scope, o.engine)
	if err != nil {
		return 0, err
	}
	charges, err := stage.mostCharges(maxCharges)
	if err != nil {
		return 0, err
	}
	for range 5 {
		if err := stage.measureYardstick(100); err != nil {
			return 0, err
		}
	}
	fmt.Printf("%v, up to %d charges in a request, seed %d\n", o.engine, charges, o.seed)
	fmt.Printf("yardstick, a plain charge on one token bucket: %s\n\n", readable(stage.yard()))
	report := &report{stage: stage}
	if err := report.holds(); err != nil {
		return 0, err
	}
	cases, err := report.cases()
	if err != nil {
		return 0, err
	}
	fmt.Printf("\nsearch for %v\n", o.length)
	s := &search{stage: stage, source: newSource(o.seed), most: charges, length: o.length}
	if err := s.run(cases); err != nil {
		return 0, err
	}
	if err := report.found(s, o.seed); err != nil {
		return 0, err
	}
	return report.judge(), nil
}
