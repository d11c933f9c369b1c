package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/headgate/headgate/bench/internal/judge"
)

// serveCallers does over HTTP, with as many servers, what callers does with the library.
func (w *world) serveCallers() {
	const runs = 20
	limits, rules := map[string][]int{}, &strings.Builder{}
	rules.WriteString("rules:\n")
	for i, algorithm := range leasing {
		limits[algorithm] = []int{i}
		fmt.Fprintf(rules, "  - {id: %s, match: {route: %s}, by: [user], algorithm: %s, limit: %d/day}\n", algorithm, algorithm,
			algorithm, count)
		w.judge(judge.Check{Kind: judge.KindTotal, Subjects: "served " + algorithm + "/", Least: count - 1, Misses: 1})
	}
	_, address := w.redis()
	servers := w.startServers(processes, address, rules.String(), patience, limits)
	w.await()
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
