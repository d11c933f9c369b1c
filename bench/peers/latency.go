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
	// pacers is the maximum number of pacers of a schedule, not counting the control's.
	pacers = 2
	// lateAfter is the latency above which a call is late. None may be, unless the control is too.
	lateAfter = 5 * time.Millisecond
	// interval is the period within which late calls count as one.
	interval = 10 * time.Millisecond
)

// schedule is an open-loop load: calls are due by the clock, whether or not earlier calls have returned.
type schedule struct {
	name string
	rate float64 // per second
	// pacers wait for the due times and hand calls to the senders. Without senders they call themselves.
	pacers, senders int
	do              do

	p99 []float64       // of each slice, in ms
	all []time.Duration // latencies since the due times
	// unexplained is the number of intervals with a late call in which the control was not late.
	unexplained int
}

// latency compares latencies at half of the maximum load with those of a control that only looks at the clock.
func (b *bench) latency() {
	// Pacers sleep in system calls and thereby each occupy a P of the Go scheduler, for which the goroutines they wake would wait.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + pacers + 1))
	store, client := b.open(), bare.Open(b, b.redis.Addr())
	strict := charge("late strict", headgate.PerMinute(1_000_000))
	strict.Strict = true
	var leased, ignored tally
	all := []*schedule{
		{
			name: "leased", pacers: pacers,
			do: b.takes(store, b.draws.hot, charge("late leased", plenty), headgate.PathLease, &leased),
		},
		{
			name: "strict", pacers: 1, senders: callers,
			do: b.takes(store, b.draws.all, strict, "", &ignored),
		},
		{name: "bare round trip", pacers: 1, senders: callers, do: func(caller, n int) error {
			return bare.Check(context.Background(), client, b.draws.keys[next(b.draws.all, caller, n)]).Error()
		}},
	}
	controls := make([]*schedule, len(all))
	for i := range controls {
		controls[i] = &schedule{name: "  its control", rate: 2000, pacers: 1, do: func(int, int) error { return nil }}
	}
	testenv.NoError(b, errors.Join(all[0].saturate(1_000_000), all[1].saturate(20_000)))
	all[2].rate = all[1].rate
	for round := range b.Rounds + 1 {
		for i, a := range all {
			testenv.NoError(b, runSlice(round, b.Slice, a, controls[i]))
		}
	}
	fmt.Printf("open-loop latency at half of the maximum load, %d rounds of %v; %.2f %% were leased\n",
		b.Rounds, b.Slice, leased.share())
	fmt.Printf("%-38s %10s %8s %8s %8s %8s %9s\n", "", "per second", "p50 ms", "p99", "p99.9", "max", "late")
	for i := range all {
		all[i].print()
		controls[i].print()
	}
	b.ExpectMax("p99 leased − control's, ms", paired.Difference(all[0].p99, controls[0].p99), 1)
	b.ExpectMax("p99 strict − bare round trip's, ms", paired.Difference(all[1].p99, all[2].p99), 1)
	b.ExpectMaxValue("intervals above 5 ms, leased, not the control's", float64(all[0].unexplained), 0)
	b.ExpectMaxValue("intervals above 5 ms, strict, not the control's, vs. bare", float64(all[1].unexplained), float64(all[2].unexplained))
}

// runSlice runs a slice of a schedule concurrently with its control.
func runSlice(round int, length time.Duration, a, control *schedule) error {
	if _, err := a.run(1<<20+round, a.in(length)); err != nil { // warm-up: leases expire during the slices of others
		return err
	}
	runtime.GC() // garbage of the previous slice
	var both sync.WaitGroup
	var late, idle []time.Duration
	var err error
	both.Go(func() { idle, _ = control.run(round, control.in(length)) })
	late, err = a.run(round, a.in(length))
	both.Wait()
	if round == 0 || err != nil {
		return err
	}
	stalled := control.lateIntervals(idle, lateAfter/2)
	for at := range a.lateIntervals(late, lateAfter) {
		if !stalled[at-1] && !stalled[at] && !stalled[at+1] {
			a.unexplained++
		}
	}
	control.addSlice(idle)
	a.addSlice(late)
	return nil
}

// saturate sets the rate to half of the maximum, which it measures with the same overhead.
func (a *schedule) saturate(n int) error {
	a.rate = math.Inf(1)
	start := time.Now()
	for range 2 { // the first run warms up
		start = time.Now()
		if _, err := a.run(0, n); err != nil {
			return err
		}
	}
	a.rate = float64(n) / time.Since(start).Seconds() / 2
	return nil
}

// in returns the number of calls in a period.
func (a *schedule) in(length time.Duration) int { return int(a.rate * length.Seconds()) }

// run makes count calls and returns their latencies since they were due, in that order.
func (a *schedule) run(round, count int) ([]time.Duration, error) {
	late := make([]time.Duration, count)
	queue := make(chan int, len(late))
	start := time.Now()
	send := func(caller, n int) error {
		err := a.do(caller, round<<32+n)
		late[n] = time.Since(start) - a.due(n)
		return err
	}
	var pacers, senders errgroup.Group
	for k := range a.pacers {
		pacers.Go(func() error {
			for n := k; n < len(late); n += a.pacers {
				for wait := a.due(n) - time.Since(start); wait > 0; wait = a.due(n) - time.Since(start) {
					suite.Sleep(wait)
				}
				if a.senders > 0 {
					queue <- n
				} else if err := send(k, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for caller := range a.senders {
		senders.Go(func() error {
			for n := range queue {
				if err := send(caller, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := pacers.Wait()
	close(queue)
	return late, errors.Join(err, senders.Wait())
}

func (a *schedule) due(n int) time.Duration {
	return time.Duration(float64(n) / a.rate * float64(time.Second))
}

// lateIntervals returns the intervals in which a call was due that was later than a bound.
func (a *schedule) lateIntervals(late []time.Duration, than time.Duration) map[int]bool {
	intervals := map[int]bool{}
	for n, d := range late {
		if d > than {
			intervals[int(a.due(n)/interval)] = true
		}
	}
	return intervals
}

func (a *schedule) addSlice(late []time.Duration) {
	a.all = append(a.all, late...)
	a.p99 = append(a.p99, millis(0.99, late))
}

func (a *schedule) print() {
	slices.Sort(a.all)
	above, _ := slices.BinarySearch(a.all, lateAfter)
	fmt.Printf("%-38s %10.0f %8.3f %8.3f %8.3f %8.3f %9d\n", a.name, a.rate,
		millis(0.5, a.all), millis(0.99, a.all), millis(0.999, a.all), millis(1, a.all), len(a.all)-above)
}

// millis returns a quantile in milliseconds.
func millis(q float64, late []time.Duration) float64 {
	return paired.Quantile(q, late).Seconds() * 1000
}
