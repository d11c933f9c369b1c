// Command budget spends one tenant's budget on streaming calls of a language model, behind Headgate and behind Envoy with
// envoyproxy/ratelimit, with the same demand and the same faults, and compares what the model has billed with the budget. It fails if
// Headgate's side spent more than the budget, or left more than 3 % of it.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == gatewayFlag {
		fmt.Fprintln(os.Stderr, serveGateway(os.Args[2]))
		os.Exit(2)
	}
	isShort := flag.Bool("short", false, "a run of 18 s, with fewer streams")
	only := flag.String("only", "", "run only sides whose name contains `text`")
	seed := flag.Uint64("seed", 0, "random `seed` of the demand, to repeat a run; 0 chooses one")
	calm := flag.Bool("calm", false, "kill nothing")
	docs := flag.String("docs", "", "write the drawing to budget/spent.svg in this `directory`")
	flag.Parse()
	suite.Main(func(scope *suite.Scope) int {
		p, chosen := &full, cmp.Or(*seed, rand.Uint64N(1_000_000))
		if *isShort {
			p = &short
		}
		fmt.Printf("budget: seed %d, %s, %d streams, %d CPUs\n", chosen, p.lasts, p.streams, runtime.NumCPU())
		all := start(scope, p, chosen, *only)
		r := all.run(scope, *calm)
		printTable(os.Stdout, p, all)
		if *docs != "" {
			testenv.NoError(scope, r.draw(p, all, filepath.Join(*docs, "budget", "spent.svg")))
		}
		return judge(p, all)
	})
}
