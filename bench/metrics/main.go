// Command metrics verifies the metrics, alerts and dashboard on real servers: a real Prometheus scrapes them under load and during
// faults. Every query of the dashboard must return data, alerts must be quiet before the faults and fire during them, and the number
// of series must not grow with the number of callers. It prints a table and fails if a target is missed.
package main

import (
	"context"
	"flag"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// maxDuration is the timeout of a run.
const maxDuration = 5 * time.Minute

func main() {
	short := flag.Bool("short", false, "use fewer callers and shorter waits")
	flag.Parse()
	steady, subjects := 20*time.Second, 1_000_000
	if *short {
		steady, subjects = 4*time.Second, 100_000
	}
	suite.Main(func(scope *suite.Scope) int {
		ctx, cancel := context.WithTimeout(scope.Context(), maxDuration)
		defer cancel()
		r := suite.NewReport()
		testenv.NoError(scope, suite.Run(ctx, func(scope *suite.Scope) { run(scope, r, steady, subjects) }))
		return r.Missed
	})
}

func run(scope *suite.Scope, r *suite.Report, steady time.Duration, subjects int) {
	w := start(scope, readDeploy(scope, "../deploy"))
	w.report = r
	w.startPrometheuses()
	stop := w.load(scope.Context())
	for _, part := range []func(*suite.Scope){
		func(t *suite.Scope) { w.quiet(t, steady) }, w.killServers, w.restartRedis, w.panels, func(t *suite.Scope) { stop(); w.tools(t) },
		func(t *suite.Scope) { w.series(t, subjects) }, w.evictKeys, w.killNodes,
	} {
		if err := scope.Run(part); err != nil {
			r.Line("error", suite.Judged(false, "%v", err)) // and continue with the next part
		}
	}
}
