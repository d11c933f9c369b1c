package main

import "github.com/headgate/headgate/bench/internal/judge"

// own is clients of one node who ask for all that Remaining says: what the node holds in advance is theirs.
func own(w *world) error {
	var g groups
	var all []int
	for _, algorithm := range leasing {
		for _, count := range []int64{200, 1000, 20_000} {
			all = append(all, len(g))
			g = append(g, []int{w.limits(judge.Limit{Algorithm: algorithm, Count: count, Window: day})})
		}
	}
	_, address := w.redis()
	nodes, err := w.startWorkers(1, address, patience, g)
	if err != nil {
		return err
	}
	w.judge(judge.Check{Kind: judge.KindClaims}, judge.Check{Kind: judge.KindCeiling})
	return nodes[0].bulk(command{
		Op: opClaim, Subject: "own/",
		Bulk: bulk{Seed: w.rand.Uint64(), Callers: 6, Groups: all, Trials: w.some(120, 900)},
	})
}
