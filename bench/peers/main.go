// Command peers compares Headgate with other rate limiters and with minimal baselines: as a library with counters in Redis and
// in memory, as a service, and behind Envoy, by throughput, CPU and latency. Servers are separate processes. It ends with a
// verdict for each target of docs/performance.md and fails if one is missed.
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/chart"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

const callers = 64

func main() {
	bare.Main()
	only := flag.String("only", "", "measure only this `part`: local, library, memory, latency or wire")
	docs := flag.String("docs", "", "write the charts to performance/ in this `directory`")
	paired.Main(12, 300*time.Millisecond, func(s *paired.Suite) {
		b := &bench{
			Suite: s, draws: newDraws(),
			speed: chart.Bars{Title: "Decisions per second", Unit: "thousands per second, all on two cores"},
			cost:  chart.Bars{Title: "CPU per decision", Unit: "µs of the limiter and its Redis; over gRPC without the callers"},
		}
		b.run(*only)
		if *docs != "" {
			b.drawCharts(*docs)
		}
	})
}

// bench is one run.
type bench struct {
	*paired.Suite
	redis *testenv.Server
	draws draws
	speed chart.Bars
	cost  chart.Bars
}

func (b *bench) run(only string) {
	started, root := time.Now(), b.Scope
	for _, part := range []struct {
		name string
		run  func()
	}{{"local", b.local}, {"library", b.library}, {"memory", b.memory}, {"latency", b.latency}, {"wire", b.wire}} {
		if only != "" && only != part.name {
			continue
		}
		// Each part has its own Redis: the keys of one must not expire during another.
		err := root.Run(func(scope *suite.Scope) {
			b.Scope, b.redis = scope, testenv.Start(scope, testenv.Redis)
			part.run()
		})
		b.Scope = root
		testenv.NoError(b, err)
	}
	fmt.Printf("\ntotal time %v\n", time.Since(started).Round(time.Second))
}

// ratio expects the throughput of one variant to be at least want times that of another.
func (b *bench) ratio(got paired.Samples, one, other string, want float64) {
	b.ExpectMin(one+" ÷ "+other, got.Ratio(one, other, paired.Throughput), want)
}
