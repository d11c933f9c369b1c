package main

import (
	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// claims has clients of one node request all of Remaining: units that the node has leased must be available to them.
func claims(w *world) {
	var g groups
	var all []int
	for _, algorithm := range leasing {
		for _, count := range []int64{200, 1000, 20_000} {
			all = append(all, len(g))
			g = append(g, []int{w.limits(judge.Limit{Algorithm: algorithm, Count: count, Window: day})})
		}
	}
	_, address := w.redis()
	nodes := w.startWorkers(1, address, longDeadline, g)
	w.judge(judge.Check{Kind: judge.KindClaims}, judge.Check{Kind: judge.KindCeiling})
	testenv.NoError(w, nodes[0].bulk(Command{
		Op: opClaim, Subject: "claims/",
		Bulk: Bulk{Seed: w.rand.Uint64(), Callers: 6, Groups: all, Trials: w.some(120, 900)},
	}))
}
