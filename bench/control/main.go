// Command control verifies on real servers that the control plane does what docs/control-plane.md promises: how soon changes are in
// force on all nodes, what large tables cost, and what callers of the nodes see while PostgreSQL fails or contains invalid rules. It
// prints a table and fails if a target is missed.
package main

import (
	"flag"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

func main() {
	short := flag.Bool("short", false, "use smaller tables and run only some of the faults")
	only := flag.String("only", "", "run only parts whose name contains `text`: changes, poison, operators, faults, size")
	flag.Parse()
	suite.Main(func(scope *suite.Scope) int {
		r := suite.NewReport()
		w := &world{Report: r, scope: scope, program: testenv.BuildHeadgate(scope), redis: testenv.Start(scope, testenv.Redis), short: *short}
		w.start()
		for _, part := range []struct {
			name string
			run  func(*suite.Scope)
		}{{"changes", w.changes}, {"poison", w.poison}, {"operators", w.operators}, {"faults", w.faults}, {"size", w.size}} {
			if !strings.Contains(part.name, *only) {
				continue
			}
			began := time.Now()
			if err := scope.Run(part.run); err != nil {
				r.Line(part.name, suite.Judged(false, "%v", err)) // and continue with the next part
			}
			scope.Logf("%s took %.0f s", part.name, time.Since(began).Seconds())
		}
		return r.Missed
	})
}
