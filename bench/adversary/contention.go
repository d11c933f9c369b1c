package main

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// contention loads limits with short windows from four processes: below the limit, at it and far above it.
func contention(w *world) {
	const nodes, perSecond = 4, 200
	limits := []judge.Limit{
		{Algorithm: judge.TokenBucket, Count: perSecond, Window: 1e6},
		{Algorithm: judge.TokenBucket, Count: perSecond, Window: 1e6, Burst: 3 * perSecond},
		{Algorithm: judge.FixedWindow, Count: perSecond, Window: 1e6},
		{Algorithm: judge.FixedWindow, Count: 2 * perSecond, Window: 2e6, Clock: true},
		{Algorithm: judge.SlidingWindow, Count: perSecond, Window: 1e6},
		{Algorithm: judge.SlidingLog, Count: perSecond, Window: 1e6},
	}
	if !w.short {
		limits = append(limits,
			judge.Limit{Algorithm: judge.FixedWindow, Count: 5 * perSecond, Window: 5e6},
			judge.Limit{Algorithm: judge.SlidingWindow, Count: 3 * perSecond, Window: 3e6})
	}
	var g groups
	for _, l := range limits {
		g = append(g, []int{w.limits(l)})
	}
	loads := []load{
		{"0.5x/", 0.5, []float64{1, 1, 1, 1}},
		{"1.05x/", 1.05, []float64{1, 1, 1, 1}},
		{"uneven 1.05x/", 1.05, []float64{2.8, 0.4, 0.4, 0.4}},
		{"3x/", 3, []float64{1, 1, 1, 1}},
	}
	for _, l := range loads {
		w.judge(judge.Check{Kind: judge.KindCeiling, Subjects: l.name, Allowance: allowance},
			judge.Check{Kind: judge.KindUse, Subjects: l.name, Least: 0.99})
	}
	// Leases taken before a pause come on top of a bucket that has refilled during the pause.
	w.judge(judge.Check{Kind: judge.KindCeiling, Subjects: "pulses/", Allowance: allowance},
		judge.Check{Kind: judge.KindUse, Subjects: "pulses/"})
	_, address := w.redis()
	workers := w.startWorkers(nodes, address, longDeadline, g)
	w.awaitFleet()
	// Some limits at a time: two cores cannot load all of them at once.
	size := w.some(len(g), 2)
	for first := 0; first < len(g); first += size {
		w.contend(workers, loads, first, min(first+size, len(g)), perSecond)
	}
	for range w.some(1, 6) {
		w.pulse(workers, len(g))
	}
}

// allowance is the fraction of its burst by which leases may let a token bucket exceed the burst.
const allowance = 0.05

// pulse requests a part of each limit from all processes at once, pauses, and then requests more than any limit allows.
func (w *world) pulse(workers []*worker, limits int) {
	send := func(group int, part float64, pause time.Duration) error {
		requests := int(part * float64(w.header.Limits[group].Capacity()) / float64(4*len(workers)))
		return forEachWorker(workers, func(i int, k *worker) error {
			return k.bulk(Command{
				Op: opLoad, Group: group, Subject: fmt.Sprintf("pulses/%d", group), Caller: 4 * i,
				Bulk: Bulk{Callers: 4, Requests: requests, Pause: pause},
			})
		})
	}
	var all errgroup.Group
	for group := range limits {
		all.Go(func() error { return send(group, 0.6, 25*time.Millisecond) })
	}
	testenv.NoError(w, all.Wait())
	w.Sleep(700 * time.Millisecond)
	for group := range limits {
		testenv.NoError(w, send(group, 1.5, 200*time.Microsecond))
	}
}

// load is a demand, as a multiple of the limit, and the weight of each process in it.
type load struct {
	name    string
	factor  float64
	weights []float64
}

// contend applies all loads at once to some of the limits.
func (w *world) contend(workers []*worker, loads []load, first, end, perSecond int) {
	start := time.Now().Add(20 * time.Millisecond)
	until := start.Add(time.Duration(w.some(4, 11)) * time.Second)
	testenv.NoError(w, forEachWorker(workers, func(i int, k *worker) error {
		var all errgroup.Group
		for group := first; group < end; group++ {
			for _, l := range loads {
				// Two callers of each process, all of them spread evenly.
				rate := l.factor * l.weights[i] * float64(perSecond) / float64(2*len(workers))
				period := time.Duration(float64(time.Second) / rate)
				all.Go(func() error {
					return k.bulk(Command{
						Op: opLoad, Group: group, Subject: fmt.Sprint(l.name, group), Caller: 2 * i,
						Bulk: Bulk{
							Callers: 2, Period: period, Until: until.UnixMicro(),
							Start: start.Add(period * time.Duration(i) / time.Duration(2*len(workers))).UnixMicro(),
						},
					})
				})
			}
		}
		return all.Wait()
	}))
}
