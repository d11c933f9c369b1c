// Command peers measures us beside what else could be used, and beside the least that could do the work: in the process
// with counters in Redis and in memory, as a service, and behind Envoy; how fast, by how much CPU, and how late. Servers
// are processes of their own. It ends with a verdict for each aim of docs/performance.md and fails if one is missed.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/chart"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

const callers = 64

func main() {
	s := &suite{}
	flag.IntVar(&s.rounds, "rounds", 12, "slices of each variant")
	flag.DurationVar(&s.slice, "slice", 300*time.Millisecond, "length of a slice")
	flag.StringVar(&s.only, "only", "", "measure this `part` alone: local, library, memory, latency or wire")
	flag.StringVar(&s.docs, "docs", "", "draw the charts in this `directory`, in performance/")
	listen := flag.String("listen", "", "be a bare server that listens at this `address`; for this program's own use")
	flag.Parse()
	if *listen != "" {
		if err := bare.Serve(*listen, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	missed, err := s.run()
	s.scope.Exit(missed, err)
}

// suite is one run.
type suite struct {
	scope  *paired.Scope
	rounds int
	slice  time.Duration
	only   string
	docs   string

	redis    *testenv.Server
	draws    draws
	aims     paired.Aims
	verdicts []func()
	speed    chart.Bars
	cost     chart.Bars
}

func (s *suite) run() (missed int, err error) {
	started := time.Now()
	s.draws = newDraws()
	s.speed.Title, s.speed.Unit = "Decisions per second", "thousands per second, all on two cores"
	s.cost.Title, s.cost.Unit = "CPU per decision", "µs of the limiter and its Redis; over gRPC without the callers"
	for _, part := range []struct {
		name string
		run  func() error
	}{{"local", s.local}, {"library", s.library}, {"memory", s.memory}, {"latency", s.latency}, {"wire", s.wire}} {
		if s.only != "" && s.only != part.name {
			continue
		}
		// Each has a Redis of its own: the keys of one shall not expire under another.
		s.scope = &paired.Scope{}
		s.redis = testenv.Start(s.scope, testenv.Redis)
		if err := part.run(); err != nil {
			return 0, err
		}
		s.scope.Close()
		fmt.Println()
	}
	for _, verdict := range s.verdicts {
		verdict()
	}
	fmt.Printf("\nall this took %v\n", time.Since(started).Round(time.Second))
	return s.aims.Failed(), s.drawCharts()
}

// samples are those of some variants, by name.
type samples map[string][]paired.Sample

// measure runs variants in turn, and prints what they did.
func (s *suite) measure(title string, slice time.Duration, variants []paired.Variant) (samples, error) {
	got, err := paired.Run(variants, s.rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("%s; %d rounds of %s; medians and quartiles\n", title, s.rounds, slice)
	paired.Table(variants, got)
	return got, nil
}

// judge has aims judged at the end.
func (s *suite) judge(verdict func()) { s.verdicts = append(s.verdicts, verdict) }

// atLeast expects a throughput of so many times another's.
func (s *suite) atLeast(got samples, one, other string, want float64) {
	ratio := paired.Ratio(got[one], got[other], paired.Throughput)
	s.judge(func() { s.aims.AtLeast(one+" ÷ "+other, ratio, want) })
}

// beside says a ratio that is no aim.
func beside(got samples, one, other string) {
	r := paired.Ratio(got[one], got[other], paired.Throughput)
	fmt.Printf("%s ÷ %s: %.2f (%.2f–%.2f)\n", one, other, r.Value, r.Low, r.High)
}
