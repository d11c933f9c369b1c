// Package paired measures variants of one thing against each other on a noisy machine: in short slices, in turn, so that
// what disturbs one disturbs all, and judges aims by the ratios within each round. It knows nothing of what it measures.
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

// Variant is one way to do the thing.
type Variant struct {
	Name string
	// Callers is how many goroutines call Do at once.
	Callers int
	// Do does it once. It is called from many goroutines; caller and n tell calls apart.
	Do func(caller, n int) error
	// ServerCPU is the CPU time that servers have used so far; nil if there are none.
	ServerCPU func() time.Duration
	// StoreCPU is the CPU time that the servers' store has used so far, where it is measured apart from theirs; else nil.
	StoreCPU func() time.Duration
	// Warm is how long it runs before each slice: for what it forgets while others have their turn.
	Warm time.Duration
}

// Sample is what one slice of one variant showed.
type Sample struct {
	PerSecond float64
	// ClientCPU, ServerCPU and StoreCPU are microseconds per call.
	ClientCPU, ServerCPU, StoreCPU float64
}

// run measures the variants in turn, a slice each, for some rounds after a first one that does not count. The samples are
// by variant and round.
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

// read returns the CPU time used so far, 0 where none is measured.
func read(used func() time.Duration) time.Duration {
	if used == nil {
		return 0
	}
	return used()
}

// CPU is what this process has used so far.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Heap is how many bytes this process has allocated and still uses.
func Heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// Median and the quartiles around it.
type Median struct{ Value, Low, High float64 }

// Of is the median of some values.
func Of(values []float64) Median {
	if len(values) == 0 {
		return Median{}
	}
	v := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 { return v[int(q*float64(len(v)-1)+0.5)] }
	return Median{at(0.5), at(0.25), at(0.75)}
}

// Quantile is that of some times, which it sorts.
func Quantile(q float64, times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[max(0, int(math.Ceil(q*float64(len(times))))-1)]
}

// Samples are those of some variants, by name and round.
type Samples map[string][]Sample

// Of picks one number of each sample of a variant. The first word of its name may stand for it.
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

// Median is that of one number of each sample of a variant.
func (s Samples) Median(name string, pick func(Sample) float64) Median { return Of(s.Of(name, pick)) }

// Ratio is one variant ÷ another, round by round.
func (s Samples) Ratio(one, other string, pick func(Sample) float64) Median {
	return Of(each(s.Of(one, pick), s.Of(other, pick), func(a, b float64) float64 { return a / b }))
}

// Difference is one variant − another, round by round.
func (s Samples) Difference(one, other string, pick func(Sample) float64) Median {
	return Difference(s.Of(one, pick), s.Of(other, pick))
}

// Difference is a − b, round by round.
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
