package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

const day = int64(24 * time.Hour / time.Microsecond)

// longDeadline is the deadline where exact counts are judged: a loaded machine must not look like an outage.
const longDeadline = time.Second

// The README's claim of exactness: processes, callers in each, requests of each caller, and the count of the shared limit.
const processes, each, requests, count = 4, 25, 12, 1000

// leasing lists the algorithms whose counters nodes may lease.
var leasing = []string{judge.FixedWindow, judge.TokenBucket, judge.SlidingWindow}

// callers tests the README's claim: 100 callers in 4 processes on a limit of 1,000 are admitted 1,000 times.
func callers(w *world) {
	runs := w.some(20, 100)
	var g groups
	for _, algorithm := range leasing {
		g = append(g, []int{w.limits(judge.Limit{Algorithm: algorithm, Count: count, Window: day})})
		w.judge(judge.Check{Kind: judge.KindTotal, Subjects: algorithm + "/", Least: count - 1, Misses: max(1, runs/100)})
	}
	_, address := w.redis()
	workers := w.startWorkers(processes, address, longDeadline, g)
	w.awaitFleet()
	for run := range runs {
		for group, algorithm := range leasing {
			start := time.Now().Add(5 * time.Millisecond).UnixMicro()
			testenv.NoError(w, forEachWorker(workers, func(i int, k *worker) error {
				return k.bulk(Command{
					Op: opLoad, Group: group, Subject: fmt.Sprintf("%s/%d", algorithm, run), Caller: i * each,
					Bulk: Bulk{Callers: each, Requests: requests, Start: start},
				})
			}))
		}
	}
	if !w.short {
		w.serveCallers()
	}
}

// serveCallers does the same as callers over HTTP, with as many servers as callers has processes.
func (w *world) serveCallers() {
	const runs = 20
	rules := map[string][]judge.Limit{}
	for _, algorithm := range leasing {
		rules[algorithm] = []judge.Limit{{Algorithm: algorithm, Count: count, Window: day}}
		w.judge(judge.Check{Kind: judge.KindTotal, Subjects: "served " + algorithm + "/", Least: count - 1, Misses: 1})
	}
	_, address := w.redis()
	servers := w.startServers(processes, address, longDeadline, rules)
	w.awaitFleet()
	for run := range runs {
		for _, algorithm := range leasing {
			var all sync.WaitGroup
			for caller := range processes * each {
				all.Go(func() {
					for range requests {
						servers[caller%processes].check(algorithm, fmt.Sprintf("served %s/%d", algorithm, run), caller)
					}
				})
			}
			all.Wait()
		}
	}
}
