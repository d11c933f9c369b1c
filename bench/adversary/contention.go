package main

import (
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
	loads := []float64{0.5, 1.05, 3}
	for _, load := range loads {
		subjects := fmt.Sprintf("%gx/", load)
		w.judge(judge.Check{Kind: judge.KindCeiling, Subjects: subjects, Allowance: w.options.allowance},
			judge.Check{Kind: judge.KindUse, Subjects: subjects, Least: 0.99})
	}
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
	return nil
}

// contend loads some of the limits with all loads at once.
func (w *world) contend(workers []*worker, loads []float64, first, end, perSecond int) error {
	start := time.Now().Add(20 * time.Millisecond)
	until := start.Add(time.Duration(w.some(4, 11)) * time.Second)
	return together(workers, func(i int, k *worker) error {
		var mu sync.Mutex
		var failed error
		var all sync.WaitGroup
		for group := first; group < end; group++ {
			for _, load := range loads {
				// Two callers of each process, all of them spread evenly.
				period := time.Duration(float64(2*len(workers)) / (load * float64(perSecond)) * float64(time.Second))
				all.Go(func() {
					err := k.bulk(command{
						Op: opLoad, Group: group, Subject: fmt.Sprintf("%gx/%d", load, group), Caller: 2 * i,
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
