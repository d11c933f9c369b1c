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

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
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
func (s *suite) latency() error {
	// Keepers sleep exactly, and thereby keep a processor of Go's to themselves: whom they have woken would wait for it.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + keepers + 1))
	store, err := s.open()
	if err != nil {
		return err
	}
	client, err := bare.Open(s.redis.Addr())
	if err != nil {
		return err
	}
	s.scope.Cleanup(client.Close)
	strict := charge("late strict", headgate.PerMinute(1_000_000))
	strict.Strict = true
	var leased, ignored tally
	all := []*schedule{
		{
			name: "leased", keepers: keepers,
			do: s.takes(store, s.draws.hot, charge("late leased", plenty), headgate.PathLease, &leased),
		},
		{
			name: "strict", keepers: 1, askers: callers,
			do: s.takes(store, s.draws.all, strict, "", &ignored),
		},
		{name: "bare round trip", keepers: 1, askers: callers, do: func(caller, n int) error {
			return bare.Check(context.Background(), client, s.draws.keys[next(s.draws.all, caller, n)]).Error()
		}},
	}
	controls := make([]*schedule, len(all))
	for i := range controls {
		controls[i] = &schedule{name: "  control beside it", rate: 2000, keepers: 1, do: nothing}
	}
	if err := errors.Join(all[0].saturate(1_000_000), all[1].saturate(20_000)); err != nil {
		return err
	}
	all[2].rate = all[1].rate
	for round := range s.rounds + 1 {
		for i, a := range all {
			if err := beat(round, s.slice, a, controls[i]); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
		}
	}
	fmt.Printf("latency by the clock, half of the most, %d rounds of %v; %.2f %% were leased\n",
		s.rounds, s.slice, leased.share())
	fmt.Printf("%-38s %10s %8s %8s %8s %8s %9s\n", "", "per second", "p50 ms", "p99", "p99.9", "max", "too late")
	for i := range all {
		all[i].print()
		controls[i].print()
	}
	s.judge(func() {
		s.aims.AtMost("p99 leased − control's, ms", less(all[0].p99, controls[0].p99), 1)
		s.aims.AtMost("p99 strict − bare round trip's, ms", less(all[1].p99, all[2].p99), 1)
		s.aims.AtMost("moments above 5 ms, leased, not the control's", paired.Of([]float64{float64(all[0].odd)}), 0)
		s.aims.AtMost("moments above 5 ms, strict, not the control's, to bare's", paired.Of([]float64{float64(all[1].odd)}),
			float64(all[2].odd))
	})
	return nil
}

func nothing(int, int) error { return nil }

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
	var mu sync.Mutex
	var failed error
	start := time.Now()
	ask := func(caller, n int) {
		if err := a.do(caller, round<<32+n); err != nil {
			mu.Lock()
			failed = err
			mu.Unlock()
		}
		late[n] = time.Since(start) - a.due(n)
	}
	var keepers, askers sync.WaitGroup
	for k := range a.keepers {
		keepers.Go(func() {
			for n := k; n < len(late); n += a.keepers {
				for wait := a.due(n) - time.Since(start); wait > 0; wait = a.due(n) - time.Since(start) {
					paired.Sleep(wait)
				}
				if a.askers == 0 {
					ask(k, n)
				} else {
					asks <- n
				}
			}
		})
	}
	for caller := range a.askers {
		askers.Go(func() {
			for n := range asks {
				ask(caller, n)
			}
		})
	}
	keepers.Wait()
	close(asks)
	askers.Wait()
	return late, failed
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
	slices.Sort(late)
	a.p99 = append(a.p99, quantile(late, 0.99))
}

func (a *schedule) print() {
	slices.Sort(a.all)
	above, _ := slices.BinarySearch(a.all, tooLate)
	fmt.Printf("%-38s %10.0f %8.3f %8.3f %8.3f %8.3f %9d\n", a.name, a.rate,
		quantile(a.all, 0.5), quantile(a.all, 0.99), quantile(a.all, 0.999), quantile(a.all, 1), len(a.all)-above)
}

// quantile is in ms, of what is sorted.
func quantile(sorted []time.Duration, q float64) float64 {
	return sorted[int(q*float64(len(sorted)-1))].Seconds() * 1000
}

// less is a − b, round by round.
func less(a, b []float64) paired.Median {
	differences := make([]float64, len(a))
	for i := range a {
		differences[i] = a[i] - b[i]
	}
	return paired.Of(differences)
}
