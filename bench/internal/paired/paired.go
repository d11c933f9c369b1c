// Package paired compares variants of one operation on a noisy machine. It runs them in short slices, in turn, so that a
// disturbance affects all of them, and judges targets by the ratios within each round. It knows nothing of what it measures.
package paired

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Variant is one implementation of the operation.
type Variant struct {
	Name string
	// Callers is the number of goroutines that call Do concurrently.
	Callers int
	// Do performs the operation once. Many goroutines call it; caller and n identify the call.
	Do func(caller, n int) error
	// ServerCPU returns the CPU time that servers have used so far; nil if there are none.
	ServerCPU func() time.Duration
	// StoreCPU returns the CPU time that the servers' store has used so far; nil if it is not measured separately.
	StoreCPU func() time.Duration
	// Warm is how long the variant runs before each slice, to refill caches that expire during the slices of others.
	Warm time.Duration
}

// Sample is the measurement of one slice of one variant.
type Sample struct {
	PerSecond float64
	// ClientCPU, ServerCPU and StoreCPU are microseconds per call.
	ClientCPU, ServerCPU, StoreCPU float64
}

// run measures the variants in turn, a slice each, for the given rounds after one warm-up round. It returns the samples by
// variant and round.
func run(variants []Variant, rounds int, slice time.Duration) (Samples, error) {
	samples := Samples{}
	for round := range rounds + 1 {
		for _, v := range variants {
			var err error
			if v.Warm > 0 {
				_, err = measure(v, 1<<20+round, v.Warm)
			}
			var s Sample
			if err == nil {
				s, err = measure(v, round, slice)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.Name, err)
			}
			if round > 0 {
				samples[v.Name] = append(samples[v.Name], s)
			}
		}
	}
	return samples, nil
}

func measure(v Variant, round int, slice time.Duration) (Sample, error) {
	var calls atomic.Int64
	var all errgroup.Group
	client, server, store := CPU(), read(v.ServerCPU), read(v.StoreCPU)
	start := time.Now()
	for caller := range v.Callers {
		all.Go(func() error {
			n := 0
			for ; n%64 != 0 || time.Since(start) < slice; n++ {
				if err := v.Do(caller, round<<32+n); err != nil {
					return err
				}
			}
			calls.Add(int64(n))
			return nil
		})
	}
	failed := all.Wait()
	elapsed := time.Since(start)
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(calls.Load()) }
	return Sample{
		PerSecond: float64(calls.Load()) / elapsed.Seconds(),
		ClientCPU: per(CPU() - client),
		ServerCPU: per(read(v.ServerCPU) - server),
		StoreCPU:  per(read(v.StoreCPU) - store),
	}, failed
}

// read returns the CPU time used so far, or 0 if it is not measured.
func read(used func() time.Duration) time.Duration {
	if used == nil {
		return 0
	}
	return used()
}

// CPU returns the CPU time that this process has used so far.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Heap returns the bytes of reachable heap memory of this process.
func Heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// Median is a median and the quartiles around it.
type Median struct{ Value, Low, High float64 }

// Of returns the median of values.
func Of(values []float64) Median {
	if len(values) == 0 {
		return Median{}
	}
	v := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 { return v[int(q*float64(len(v)-1)+0.5)] }
	return Median{at(0.5), at(0.25), at(0.75)}
}

// Quantile returns the q-quantile of times, and sorts them.
func Quantile(q float64, times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[max(0, int(math.Ceil(q*float64(len(times))))-1)]
}

// Samples holds the samples of variants, by name and round.
type Samples map[string][]Sample

// Of picks one number of each sample of a variant. The name may be abbreviated to its first word.
func (s Samples) Of(name string, pick func(Sample) float64) []float64 {
	samples := s[name]
	for variant := range s {
		if samples == nil && strings.HasPrefix(variant, name+" ") {
			samples = s[variant]
		}
	}
	values := make([]float64, len(samples))
	for i, sample := range samples {
		values[i] = pick(sample)
	}
	return values
}

// Median returns the median of one number of each sample of a variant.
func (s Samples) Median(name string, pick func(Sample) float64) Median { return Of(s.Of(name, pick)) }

// Ratio returns the median of one variant ÷ another, round by round.
func (s Samples) Ratio(one, other string, pick func(Sample) float64) Median {
	return Of(each(s.Of(one, pick), s.Of(other, pick), func(a, b float64) float64 { return a / b }))
}

// Difference returns the median of one variant − another, round by round.
func (s Samples) Difference(one, other string, pick func(Sample) float64) Median {
	return Difference(s.Of(one, pick), s.Of(other, pick))
}

// Difference returns the median of a − b, round by round.
func Difference(a, b []float64) Median {
	return Of(each(a, b, func(a, b float64) float64 { return a - b }))
}

func each(a, b []float64, f func(a, b float64) float64) []float64 {
	values := make([]float64, len(a))
	for i := range a {
		values[i] = f(a[i], b[i])
	}
	return values
}

// Throughput picks the calls per second.
func Throughput(s Sample) float64 { return s.PerSecond }

// ClientCPU picks the client's CPU per call.
func ClientCPU(s Sample) float64 { return s.ClientCPU }

// ServerCPU picks the servers' CPU per call.
func ServerCPU(s Sample) float64 { return s.ServerCPU }

// StoreCPU picks the store's CPU per call.
func StoreCPU(s Sample) float64 { return s.StoreCPU }
