// Package paired measures variants of one thing against each other on a noisy machine: in short slices, in turn, so that
// what disturbs one disturbs all, and judges aims by the ratios within each round. It knows nothing of what it measures.
package paired

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
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

// Run measures the variants in turn, a slice each, for some rounds after a first one that does not count. The samples are
// by variant and round.
func Run(variants []Variant, rounds int, slice time.Duration) (map[string][]Sample, error) {
	samples := map[string][]Sample{}
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
	var mu sync.Mutex
	var calls int
	var failed error
	var done sync.WaitGroup
	client, server, store := cpu(), read(v.ServerCPU), read(v.StoreCPU)
	start := time.Now()
	for caller := range v.Callers {
		done.Go(func() {
			n := 0
			for ; n%64 != 0 || time.Since(start) < slice; n++ {
				if err := v.Do(caller, round<<32+n); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
			}
			mu.Lock()
			calls += n
			mu.Unlock()
		})
	}
	done.Wait()
	elapsed := time.Since(start)
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(calls) }
	return Sample{
		PerSecond: float64(calls) / elapsed.Seconds(),
		ClientCPU: per(cpu() - client),
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

// cpu is what this process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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

// Field picks one number of each sample.
func Field(samples []Sample, pick func(Sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = pick(s)
	}
	return values
}

// Ratio is a ÷ b, round by round.
func Ratio(a, b []Sample, pick func(Sample) float64) Median {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = pick(a[i]) / pick(b[i])
	}
	return Of(ratios)
}

// Throughput picks the calls per second.
func Throughput(s Sample) float64 { return s.PerSecond }

// ClientCPU picks the client's CPU per call.
func ClientCPU(s Sample) float64 { return s.ClientCPU }

// ServerCPU picks the servers' CPU per call.
func ServerCPU(s Sample) float64 { return s.ServerCPU }

// StoreCPU picks the store's CPU per call.
func StoreCPU(s Sample) float64 { return s.StoreCPU }

// ServerAndStoreCPU picks the CPU per call of the servers and their store together.
func ServerAndStoreCPU(s Sample) float64 { return s.ServerCPU + s.StoreCPU }

// Table prints medians and quartiles of each variant. The store's CPU has a column if it is measured apart.
func Table(variants []Variant, samples map[string][]Sample) {
	apart := slices.ContainsFunc(variants, func(v Variant) bool { return v.StoreCPU != nil })
	fmt.Printf("%-38s %28s %22s %22s", "", "calls/s", "client CPU µs", "server CPU µs")
	if apart {
		fmt.Printf(" %22s", "store CPU µs")
	}
	fmt.Println()
	for _, v := range variants {
		s := samples[v.Name]
		t, c, r := Of(Field(s, Throughput)), Of(Field(s, ClientCPU)), Of(Field(s, ServerCPU))
		fmt.Printf("%-38s %9.0f (%7.0f–%7.0f) %6.2f (%5.2f–%5.2f) %6.2f (%5.2f–%5.2f)", v.Name,
			t.Value, t.Low, t.High, c.Value, c.Low, c.High, r.Value, r.Low, r.High)
		if apart {
			b := Of(Field(s, StoreCPU))
			fmt.Printf(" %6.2f (%5.2f–%5.2f)", b.Value, b.Low, b.High)
		}
		fmt.Println()
	}
}

// Print prints a median that is not judged.
func Print(what string, got Median) {
	fmt.Printf("      %-62s %8.2f (%.2f–%.2f), not judged\n", what, got.Value, got.Low, got.High)
}

// Aims prints a verdict for each and counts those missed.
type Aims struct{ failed int }

// AtLeast expects a median of at least a value.
func (a *Aims) AtLeast(what string, got Median, want float64) {
	a.judge(what, got, "≥", want, got.Value >= want)
}

// AtMost expects a median of at most a value.
func (a *Aims) AtMost(what string, got Median, want float64) {
	a.judge(what, got, "≤", want, got.Value <= want)
}

func (a *Aims) judge(what string, got Median, sign string, want float64, ok bool) {
	verdict := "PASS"
	if !ok {
		verdict = "FAIL"
		a.failed++
	}
	fmt.Printf("%s  %-62s %8.2f (%.2f–%.2f), aim %s %g\n", verdict, what, got.Value, got.Low, got.High, sign, want)
}

// Failed is how many aims were missed.
func (a *Aims) Failed() int { return a.failed }
