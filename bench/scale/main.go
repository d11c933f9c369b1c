// Command scale checks the plan of docs/scale.md: it measures what a decision and a subject cost on a small store, fills a Redis
// with many subjects, compares, and says what the size to carry needs by these figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
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
	subjects := flag.Int("subjects", 10_000_000, "how many subjects to fill Redis with, each with five limits; a million takes 300 MB and 20 s")
	rounds := flag.Int("rounds", 15, "slices of each variant")
	slice := flag.Duration("slice", 300*time.Millisecond, "length of a slice")
	flag.Parse()
	scope := &paired.Scope{}
	failed, err := run(scope, *subjects, *rounds, *slice)
	scope.Exit(failed, err)
}

func run(scope *paired.Scope, subjects, rounds int, slice time.Duration) (failed int, err error) {
	few, err := fill(scope, sample)
	if err != nil {
		return 0, err
	}
	many, err := fill(scope, subjects)
	if err != nil {
		return 0, err
	}
	variants := []paired.Variant{few.variant(), many.variant()}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return 0, err
	}
	paired.Table(variants, s)
	small, large := s[variants[0].Name], s[variants[1].Name]
	plan{
		bytes: few.bytes, network: few.network, redisCPU: paired.Of(column(large, paired.ServerCPU)).Value,
		callerCPU: paired.Of(column(large, paired.ClientCPU)).Value,
	}.print()
	aims := &paired.Aims{}
	aims.AtMost("memory of all ÷ planned by the sample", paired.Of([]float64{many.bytes / few.bytes}), 1.1)
	aims.AtLeast("memory of all ÷ planned by the sample", paired.Of([]float64{many.bytes / few.bytes}), 0.9)
	aims.AtMost("Redis CPU per decision, all ÷ sample", paired.Ratio(large, small, paired.ServerCPU), 1.25)
	return aims.Failed(), nil
}

func column(samples []paired.Sample, of func(paired.Sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	return values
}

// filled is a Redis with many subjects.
type filled struct {
	server   *testenv.Server
	store    *redisstore.Store
	subjects int
	bytes    float64 // of each
	network  float64 // bytes of a decision
	cpu      func() time.Duration
}

func fill(scope *paired.Scope, subjects int) (*filled, error) {
	f := &filled{server: testenv.Start(scope, testenv.Redis), subjects: subjects}
	var err error
	if f.store, err = redisstore.Open("redis://" + f.server.Addr()); err != nil {
		return nil, err
	}
	scope.Cleanup(f.store.Close)
	f.cpu = func() time.Duration { return f.server.CPU(scope) }
	before, start := f.server.UsedMemory(scope), time.Now()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			for n := next.Add(1); n <= int64(subjects) && failed.Load() == nil; n = next.Add(1) {
				if err := f.take(int(n)); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	done.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	f.bytes = float64(f.server.UsedMemory(scope)-before) / float64(subjects)
	f.network = f.sent(scope) / float64(subjects)
	fmt.Printf("%d subjects with %d limits: %.0f bytes each, filled in %s\n", subjects, limits, f.bytes, time.Since(start).Round(time.Second))
	return f, nil
}

// sent is how many bytes Redis has read and written so far.
func (f *filled) sent(scope *paired.Scope) (sum float64) {
	text, _ := f.server.Must(scope, "INFO", "stats").(string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "total_net_input_bytes" || name == "total_net_output_bytes" {
			n, _ := strconv.ParseFloat(value, 64)
			sum += n
		}
	}
	return sum
}

var counters = func() (all [limits]headgate.Counter) {
	for i := range all {
		all[i] = headgate.CounterOf("scale", strconv.Itoa(i), headgate.TokenBucket)
	}
	return all
}()

// take is one decision. The limits are by the day, so that none is forgotten before the end.
func (f *filled) take(subject int) error {
	charges, results := make([]headgate.Charge, limits), make([]headgate.Result, limits)
	who := headgate.SubjectOf("scale", strconv.Itoa(subject))
	for i := range charges {
		charges[i] = headgate.Charge{Subject: who, Counter: counters[i], Limit: headgate.PerDay(int64(1 + i)), Cost: 1}
	}
	return f.store.Take(context.Background(), charges, results)
}

func (f *filled) variant() paired.Variant {
	return paired.Variant{
		Name: fmt.Sprintf("%d limits of one of %d subjects", limits, f.subjects), Callers: callers, ServerCPU: f.cpu,
		Do: func(caller, n int) error { return f.take(1 + bare.Spread(caller, n)%f.subjects) },
	}
}
