// Command scale verifies the capacity plan of docs/capacity.md: it measures the cost of a decision and of a subject on a small store,
// fills a Redis with many subjects, compares the two, and prints the capacity that the planned size requires.
package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

const (
	callers = 64
	limits  = 5
	sample  = 200_000
)

func main() {
	subjects := flag.Int("subjects", 10_000_000, "number of subjects in Redis, each with five limits; a million takes 300 MB and 20 s")
	paired.Main(15, 300*time.Millisecond, func(s *paired.Suite) {
		few, many := fill(s, sample), fill(s, *subjects)
		small, large := few.variant("small"), many.variant("large")
		got := s.Measure(fmt.Sprintf("%d limits of one subject", limits), s.Rounds, s.Slice, []paired.Variant{small, large})
		plan{
			bytes: few.bytes, network: few.network, redisCPU: got.Median(large.Name, paired.ServerCPU).Value,
			callerCPU: got.Median(large.Name, paired.ClientCPU).Value,
		}.print()
		memory := paired.Of([]float64{many.bytes / few.bytes})
		s.ExpectMax("memory of all ÷ planned from the sample", memory, 1.1)
		s.ExpectMin("memory of all ÷ planned from the sample", memory, 0.9)
		s.ExpectMax("Redis CPU per decision, all ÷ sample", got.Ratio(large.Name, small.Name, paired.ServerCPU), 1.25)
	})
}

// filled is a Redis with many subjects.
type filled struct {
	server   *testenv.Server
	store    *redisstore.Store
	subjects int
	bytes    float64 // per subject
	network  float64 // bytes per decision
	cpu      func() time.Duration
}

func fill(s *paired.Suite, subjects int) *filled {
	f := &filled{server: testenv.Start(s, testenv.Redis), subjects: subjects}
	f.store = fleet.Open(s, "redis://"+f.server.Addr())
	f.cpu = func() time.Duration { return f.server.CPU(s) }
	before, start := f.server.UsedMemory(s), time.Now()
	var next atomic.Int64
	var all errgroup.Group
	for range callers {
		all.Go(func() error {
			for n := next.Add(1); n <= int64(subjects); n = next.Add(1) {
				if err := f.take(int(n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	testenv.NoError(s, all.Wait())
	f.bytes = float64(f.server.UsedMemory(s)-before) / float64(subjects)
	f.network = f.sent(s) / float64(subjects)
	fmt.Printf("%d subjects with %d limits: %.0f bytes each, filled in %s\n", subjects, limits, f.bytes, time.Since(start).Round(time.Second))
	return f
}

// sent returns the bytes that Redis has read and written so far.
func (f *filled) sent(s *paired.Suite) float64 {
	stats := f.server.Info(s, "stats")
	in, _ := strconv.ParseFloat(stats["total_net_input_bytes"], 64)
	out, _ := strconv.ParseFloat(stats["total_net_output_bytes"], 64)
	return in + out
}

var counters = func() (all [limits]headgate.Counter) {
	for i := range all {
		all[i] = headgate.CounterOf("scale", strconv.Itoa(i), headgate.TokenBucket)
	}
	return all
}()

// take makes one decision. The limits are per day, so that no counter expires before the end.
func (f *filled) take(subject int) error {
	charges, results := make([]headgate.Charge, limits), make([]headgate.Result, limits)
	who := headgate.SubjectOf("scale", strconv.Itoa(subject))
	for i := range charges {
		charges[i] = headgate.Charge{Subject: who, Counter: counters[i], Limit: headgate.PerDay(int64(1 + i)), Cost: 1}
	}
	return f.store.Take(context.Background(), charges, results)
}

func (f *filled) variant(name string) paired.Variant {
	return paired.Variant{
		Name: fmt.Sprintf("%s: one of %d subjects", name, f.subjects), Callers: callers, ServerCPU: f.cpu,
		Do: func(caller, n int) error { return f.take(1 + bare.Spread(caller, n)%f.subjects) },
	}
}
