// Command metrics shows on real servers that whoever is on call sees what happens: a real Prometheus scrapes them while they are
// under load and in trouble. Every query of the dashboard has an answer, alerts are quiet before the trouble and fire in it, and
// the number of series does not grow with that of the callers. It prints a table, and fails if an aim is missed.
package main

import (
	"context"
	"flag"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// longest is the end of a run that hangs.
const longest = 5 * time.Minute

func main() {
	short := flag.Bool("short", false, "fewer callers and less waiting")
	flag.Parse()
	steady, subjects := 20*time.Second, 1_000_000
	if *short {
		steady, subjects = 4*time.Second, 100_000
	}
	suite.Main(func(scope *suite.Scope) int {
		ctx, cancel := context.WithTimeout(scope.Context(), longest)
		defer cancel()
		r := suite.NewReport()
		testenv.NoError(scope, suite.Run(ctx, func(scope *suite.Scope) { run(scope, r, steady, subjects) }))
		return r.Missed
	})
}

func run(scope *suite.Scope, r *suite.Report, steady time.Duration, subjects int) {
	w := start(scope, readDeploy(scope, "../deploy"))
	w.report = r
	w.watch()
	stop := w.load(scope.Context())
	for _, part := range []func(*suite.Scope){
		func(t *suite.Scope) { w.quiet(t, steady) }, w.trouble, w.aftermath, w.panels, func(t *suite.Scope) { stop(); w.tools(t) },
		func(t *suite.Scope) { w.series(t, subjects) }, w.crowded, w.end,
	} {
		if err := scope.Run(part); err != nil {
			r.Line("an error", suite.Judged(false, "%v", err)) // and the next part may show more
		}
	}
}
