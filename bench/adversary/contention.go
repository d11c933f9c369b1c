package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// contention is four processes that share limits of short windows, below them, at them and far above them.
func contention(w *world) error {
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
		w.judge(judge.Check{Kind: judge.KindCeiling, Subjects: l.name, Allowance: w.options.allowance},
			judge.Check{Kind: judge.KindUse, Subjects: l.name, Least: 0.99})
	}
	// Leases that were taken before a pause come on top of a bucket that has refilled meanwhile.
	w.judge(judge.Check{Kind: judge.KindCeiling, Subjects: "pulses/", Allowance: w.options.allowance},
		judge.Check{Kind: judge.KindUse, Subjects: "pulses/"})
	_, address := w.redis()
	workers, err := w.startWorkers(nodes, address, patience, g)
	if err != nil {
		return err
	}
	w.await()
	// One part of the limits after the other: two cores cannot do all at once in time.
	size := w.some(len(g), 2)
	for first := 0; first < len(g); first += size {
		if err := w.contend(workers, loads, first, min(first+size, len(g)), perSecond); err != nil {
			return err
		}
	}
	for range w.some(1, 6) {
		if err := w.pulse(workers, len(g)); err != nil {
			return err
		}
	}
	return nil
}

// pulse asks for some of each limit, from all processes at once, then for nothing, and then for more than any of them has.
func (w *world) pulse(workers []*worker, limits int) error {
	ask := func(group int, part float64, pause time.Duration) error {
		requests := int(part * float64(w.header.Limits[group].Capacity()) / float64(4*len(workers)))
		return together(workers, func(i int, k *worker) error {
			return k.bulk(command{
				Op: opLoad, Group: group, Subject: fmt.Sprintf("pulses/%d", group), Caller: 4 * i,
				Bulk: bulk{Callers: 4, Requests: requests, Pause: pause},
			})
		})
	}
	errs := make([]error, limits)
	var all sync.WaitGroup
	for group := range limits {
		all.Go(func() { errs[group] = ask(group, 0.6, 25*time.Millisecond) })
	}
	all.Wait()
	w.sleep(700 * time.Millisecond)
	for group := range limits {
		if err := ask(group, 1.5, 200*time.Microsecond); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// load is how much is asked for, as a part of the limit, and by which process how much of that.
type load struct {
	name    string
	factor  float64
	weights []float64
}

// contend loads some of the limits with all loads at once.
func (w *world) contend(workers []*worker, loads []load, first, end, perSecond int) error {
	start := time.Now().Add(20 * time.Millisecond)
	until := start.Add(time.Duration(w.some(4, 11)) * time.Second)
	return together(workers, func(i int, k *worker) error {
		var mu sync.Mutex
		var failed error
		var all sync.WaitGroup
		for group := first; group < end; group++ {
			for _, l := range loads {
				// Two callers of each process, all of them spread evenly.
				rate := l.factor * l.weights[i] * float64(perSecond) / float64(2*len(workers))
				period := time.Duration(float64(time.Second) / rate)
				all.Go(func() {
					err := k.bulk(command{
						Op: opLoad, Group: group, Subject: fmt.Sprint(l.name, group), Caller: 2 * i,
						Bulk: bulk{
							Callers: 2, Period: period, Until: until.UnixMicro(),
							Start: start.Add(period * time.Duration(i) / time.Duration(2*len(workers))).UnixMicro(),
						},
					})
					if err != nil {
						mu.Lock()
						failed = err
						mu.Unlock()
					}
				})
			}
		}
		all.Wait()
		return failed
	})
}
