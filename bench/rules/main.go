// Command rules measures the work of a Limiter outside its store: matching a request against ten thousand rules, whole checks,
// and a million overrides. It ends with a verdict for each target and fails if one is missed.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

// bench is one run of the suite.
type bench struct{ *paired.Suite }

func main() {
	paired.Main(15, 100*time.Millisecond, func(suite *paired.Suite) {
		s := bench{suite}
		fmt.Printf("Nanoseconds of single calls, without those of the timer; medians and quartiles of %d slices of %s.\n", s.Rounds, s.Slice)
		fmt.Println("A request's attributes are in the CPU cache when its call begins, as after parsing.")
		var hash [64]byte
		fmt.Printf("Current speed of the machine: SHA-256 of 64 bytes takes %.0f ns.\n",
			timed(func() { sum := sha256.Sum256(hash[:]); copy(hash[:], sum[:]) })-timer())
		s.matching()
		s.checks()
		s.overrides()
	})
}

func (s bench) limiter(store headgate.Store, rules ...headgate.Rule) *headgate.Limiter {
	limiter, err := headgate.New(store, rules...)
	testenv.NoError(s, err)
	return limiter
}

// variant is one kind of check.
type variant struct {
	name    string
	limiter *headgate.Limiter
	request func(n int) headgate.Attributes // returns the nth request, untimed
	limits  int                             // of every decision
	remark  string

	p50, p99 []float64 // nanoseconds, by slice
	allocs   float64
}

// measureInTurn measures the variants, a slice each per round, after a warm-up round, and prints them.
func (s bench) measureInTurn(title string, variants []variant) {
	for round := range s.Rounds + 1 {
		for i := range variants {
			nanos := s.measure(&variants[i], round)
			if round > 0 {
				variants[i].p50 = append(variants[i].p50, nanos[len(nanos)/2])
				variants[i].p99 = append(variants[i].p99, nanos[len(nanos)*99/100])
			}
		}
	}
	fmt.Printf("\n%s\n%-44s %24s %24s %6s\n", title, "", "p50 ns", "p99 ns", "allocs")
	for i := range variants {
		v := &variants[i]
		v.countAllocations()
		p50, p99 := paired.Of(v.p50), paired.Of(v.p99)
		fmt.Printf("%-44s %8.0f (%6.0f–%6.0f) %8.0f (%6.0f–%6.0f) %6.2f  %s\n",
			v.name, p50.Value, p50.Low, p50.High, p99.Value, p99.Low, p99.High, v.allocs, v.remark)
	}
}

// measure returns the sorted durations of the calls of one slice.
func (s bench) measure(v *variant, round int) []float64 {
	nanos := make([]float64, 0, 1<<16)
	timer := timer()
	start := time.Now()
	for n := round << 24; len(nanos)%64 != 0 || time.Since(start) < s.Slice; n++ {
		req := headgate.Request{Attributes: v.request(n)}
		for _, value := range req.Attributes {
			if value[len(value)-1] == 0 { // reads the value into the cache
				s.Fatalf("%q", value)
			}
		}
		before := time.Since(start)
		d, err := v.limiter.Check(context.Background(), req)
		nanos = append(nanos, float64(time.Since(start)-before)-timer)
		if err != nil || !d.Allowed || len(d.Limits) != v.limits {
			s.Fatalf("%s: allowed %t by %d limits, expected %d; error %v", v.name, d.Allowed, len(d.Limits), v.limits, err)
		}
	}
	slices.Sort(nanos)
	return nanos
}

func (v *variant) countAllocations() {
	const times = 10_000
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would empty the pools
	var before, after runtime.MemStats
	for n := range 2 * times {
		if n == times {
			runtime.ReadMemStats(&before)
		}
		_, _ = v.limiter.Check(context.Background(), headgate.Request{Attributes: v.request(n)})
	}
	runtime.ReadMemStats(&after)
	v.allocs = math.Round(float64(after.Mallocs-before.Mallocs)/times*100) / 100
}

// expect judges the targets of a variant.
func (s bench) expect(what string, v *variant, nanos, allocs float64) {
	s.ExpectMax(what+" p50 ns, "+v.name, paired.Of(v.p50), nanos)
	s.ExpectMaxValue(what+" allocations, "+v.name, v.allocs, allocs)
}

// timer returns the cost of timing an empty function, in nanoseconds.
func timer() float64 { return timed(func() {}) }

// timed returns the median duration of f, including the timer, in nanoseconds.
func timed(f func()) float64 {
	start := time.Now()
	nanos := make([]float64, 1001)
	for i := range nanos {
		before := time.Since(start)
		f()
		nanos[i] = float64(time.Since(start) - before)
	}
	return paired.Of(nanos).Value
}
