package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	// keepers is how many look at the clock, at the most, beside the control.
	keepers = 2
	// tooLate is what nothing may be, unless the machine itself is.
	tooLate = 5 * time.Millisecond
	// moment is how close to each other two are that were late for the same reason.
	moment = 10 * time.Millisecond
)

// schedule is what is asked by the clock, whether or not the ones before are answered.
type schedule struct {
	name string
	rate float64 // per second
	// keepers look at the clock, and ask themselves if there is nobody else to.
	keepers, askers int
	do              do

	p99 []float64       // of each slice, in ms
	all []time.Duration // from when an answer was due to be asked for
	// odd is how many moments had an answer that was too late, while the control was not.
	odd int
}

// latency compares how late answers are at half of the load that would be too much, beside somebody who only looks at the
// clock.
func (b *bench) latency() {
	// Keepers sleep exactly, and thereby keep a processor of Go's to themselves: whom they have woken would wait for it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + keepers + 1))
	store, client := b.open(), bare.Open(b, b.redis.Addr())
	strict := charge("late strict", headgate.PerMinute(1_000_000))
	strict.Strict = true
	var leased, ignored tally
	all := []*schedule{
		{
			name: "leased", keepers: keepers,
			do: b.takes(store, b.draws.hot, charge("late leased", plenty), headgate.PathLease, &leased),
		},
		{
			name: "strict", keepers: 1, askers: callers,
			do: b.takes(store, b.draws.all, strict, "", &ignored),
		},
		{name: "bare round trip", keepers: 1, askers: callers, do: func(caller, n int) error {
			return bare.Check(context.Background(), client, b.draws.keys[next(b.draws.all, caller, n)]).Error()
		}},
	}
	controls := make([]*schedule, len(all))
	for i := range controls {
		controls[i] = &schedule{name: "  control beside it", rate: 2000, keepers: 1, do: func(int, int) error { return nil }}
	}
	testenv.NoError(b, errors.Join(all[0].saturate(1_000_000), all[1].saturate(20_000)))
	all[2].rate = all[1].rate
	for round := range b.Rounds + 1 {
		for i, a := range all {
			testenv.NoError(b, beat(round, b.Slice, a, controls[i]))
		}
	}
	fmt.Printf("latency by the clock, half of the most, %d rounds of %v; %.2f %% were leased\n",
		b.Rounds, b.Slice, leased.share())
	fmt.Printf("%-38s %10s %8s %8s %8s %8s %9s\n", "", "per second", "p50 ms", "p99", "p99.9", "max", "too late")
	for i := range all {
		all[i].print()
		controls[i].print()
	}
	b.ExpectMax("p99 leased − control's, ms", paired.Difference(all[0].p99, controls[0].p99), 1)
	b.ExpectMax("p99 strict − bare round trip's, ms", paired.Difference(all[1].p99, all[2].p99), 1)
	b.ExpectMaxValue("moments above 5 ms, leased, not the control's", float64(all[0].odd), 0)
	b.ExpectMaxValue("moments above 5 ms, strict, not the control's, to bare's", float64(all[1].odd), float64(all[2].odd))
}

// beat runs a slice of a schedule beside its control.
func beat(round int, length time.Duration, a, control *schedule) error {
	if _, err := a.run(1<<20+round, a.in(length)); err != nil { // what it forgets while others have their turn
		return err
	}
	runtime.GC() // of the slice before
	var both sync.WaitGroup
	var late, idle []time.Duration
	var err error
	both.Go(func() { idle, _ = control.run(round, control.in(length)) })
	late, err = a.run(round, a.in(length))
	both.Wait()
	if round == 0 || err != nil {
		return err
	}
	stalled := control.lateMoments(idle, tooLate/2)
	for at := range a.lateMoments(late, tooLate) {
		if !stalled[at-1] && !stalled[at] && !stalled[at+1] {
			a.odd++
		}
	}
	control.keep(idle)
	a.keep(late)
	return nil
}

// saturate sets the rate to half of what can be asked, with all that is done to measure it.
func (a *schedule) saturate(n int) error {
	a.rate = math.Inf(1)
	start := time.Now()
	for range 2 { // the first one warms up
		start = time.Now()
		if _, err := a.run(0, n); err != nil {
			return err
		}
	}
	a.rate = float64(n) / time.Since(start).Seconds() / 2
	return nil
}

// in is how many are asked in a time.
func (a *schedule) in(length time.Duration) int { return int(a.rate * length.Seconds()) }

// run is how late so many answers were, in the order in which they were due.
func (a *schedule) run(round, count int) ([]time.Duration, error) {
	late := make([]time.Duration, count)
	asks := make(chan int, len(late))
	start := time.Now()
	ask := func(caller, n int) error {
		err := a.do(caller, round<<32+n)
		late[n] = time.Since(start) - a.due(n)
		return err
	}
	var keepers, askers errgroup.Group
	for k := range a.keepers {
		keepers.Go(func() error {
			for n := k; n < len(late); n += a.keepers {
				for wait := a.due(n) - time.Since(start); wait > 0; wait = a.due(n) - time.Since(start) {
					suite.Sleep(wait)
				}
				if a.askers > 0 {
					asks <- n
				} else if err := ask(k, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for caller := range a.askers {
		askers.Go(func() error {
			for n := range asks {
				if err := ask(caller, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := keepers.Wait()
	close(asks)
	return late, errors.Join(err, askers.Wait())
}

func (a *schedule) due(n int) time.Duration {
	return time.Duration(float64(n) / a.rate * float64(time.Second))
}

// lateMoments are those in which something was due that was so late.
func (a *schedule) lateMoments(late []time.Duration, than time.Duration) map[int]bool {
	moments := map[int]bool{}
	for n, d := range late {
		if d > than {
			moments[int(a.due(n)/moment)] = true
		}
	}
	return moments
}

func (a *schedule) keep(late []time.Duration) {
	a.all = append(a.all, late...)
	a.p99 = append(a.p99, millis(0.99, late))
}

func (a *schedule) print() {
	slices.Sort(a.all)
	above, _ := slices.BinarySearch(a.all, tooLate)
	fmt.Printf("%-38s %10.0f %8.3f %8.3f %8.3f %8.3f %9d\n", a.name, a.rate,
		millis(0.5, a.all), millis(0.99, a.all), millis(0.999, a.all), millis(1, a.all), len(a.all)-above)
}

// millis is a quantile in ms.
func millis(q float64, late []time.Duration) float64 {
	return paired.Quantile(q, late).Seconds() * 1000
}
