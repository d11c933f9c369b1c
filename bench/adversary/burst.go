package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// burst has one client send more sequential requests than its limit allows, to the nodes in turn: units that one node has leased
// must not be missing for the client.
func burst(w *world) {
	const count, requests = 200, 250
	var g groups
	for _, algorithm := range leasing {
		g = append(g, []int{w.limits(judge.Limit{Algorithm: algorithm, Count: count, Window: day})})
	}
	w.judge(judge.Check{Kind: judge.KindTotal, Least: count - 1})
	var fleets [][]*worker
	for _, size := range []int{1, 2, 4} {
		_, address := w.redis()
		fleets = append(fleets, w.startWorkers(size, address, longDeadline, g))
	}
	w.awaitFleet()
	client := func(nodes []*worker, group int, pause time.Duration, trials int) error {
		for trial := range trials {
			subject := fmt.Sprintf("%s/%d nodes/%v/%d", leasing[group], len(nodes), pause, trial)
			for i := range requests {
				one := Command{Op: judge.OpCheck, Group: group, Subject: subject, Cost: 1}
				if err := nodes[i%len(nodes)].requestAndRecord(one); err != nil {
					return err
				}
				time.Sleep(pause)
			}
		}
		return nil
	}
	var all errgroup.Group
	for _, nodes := range fleets {
		for group := range g {
			all.Go(func() error { return client(nodes, group, 15*time.Millisecond, w.some(1, 3)) })
		}
		// The fast clients have the nodes to themselves: only then are they fast.
		all.Go(func() error {
			var failed error
			for group := range g {
				failed = errors.Join(failed, client(nodes, group, 0, w.some(6, 20)), client(nodes, group, time.Millisecond, w.some(2, 20)))
			}
			return failed
		})
	}
	testenv.NoError(w, all.Wait())
}
