package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// burst is one client that sends its requests one after the other to the nodes in turn, more than its limit has: what one
// node holds in advance must not be missing for the client.
func burst(w *world) error {
	const count, requests = 200, 250
	var g groups
	for _, algorithm := range leasing {
		g = append(g, []int{w.limits(judge.Limit{Algorithm: algorithm, Count: count, Window: day})})
	}
	w.judge(judge.Check{Kind: judge.KindTotal, Least: count - 1})
	var fleets [][]*worker
	for _, size := range []int{1, 2, 4} {
		_, address := w.redis()
		nodes, err := w.startWorkers(size, address, patience, g)
		if err != nil {
			return err
		}
		fleets = append(fleets, nodes)
	}
	w.await()
	var mu sync.Mutex
	var failed error
	client := func(nodes []*worker, group int, pause time.Duration, trials int) {
		for trial := range trials {
			subject := fmt.Sprintf("%s/%d nodes/%v/%d", leasing[group], len(nodes), pause, trial)
			for i := range requests {
				one := command{Op: judge.OpCheck, Group: group, Subject: subject, Cost: 1}
				if err := nodes[i%len(nodes)].ask(one); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
				if pause > 0 {
					time.Sleep(pause)
				}
			}
		}
	}
	var all sync.WaitGroup
	for _, nodes := range fleets {
		for group := range g {
			all.Go(func() { client(nodes, group, 15*time.Millisecond, w.some(1, 3)) })
		}
		// The quick ones have the nodes to themselves: only then are they quick.
		all.Go(func() {
			for group := range g {
				client(nodes, group, 0, w.some(6, 20))
				client(nodes, group, time.Millisecond, w.some(2, 20))
			}
		})
	}
	all.Wait()
	return failed
}
