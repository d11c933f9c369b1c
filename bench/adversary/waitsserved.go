package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// waitRules are the rules of the server whose Retry-After is tried.
const waitRules = `rules:
  - {id: bucket, match: {route: bucket}, by: [user], limit: 4/2s}
  - {id: fixed, match: {route: fixed}, by: [user], algorithm: fixed_window, limit: 60/2s}
  - {id: sliding, match: {route: sliding}, by: [user], algorithm: sliding_window, limit: 5/s}
  - {id: log, match: {route: log}, by: [user], algorithm: sliding_log, limit: 3/s}
  - {id: pair, match: {route: pair}, by: [user], limits: {second: 5/s, hour: 5/h}}
`

// servedWaits returns what does over HTTP what waits does with the library: clients come back after the Retry-After of their denial.
func (w *world) servedWaits(redis string) func(until time.Time) {
	limits := map[string][]int{}
	for _, l := range []struct {
		rule  string
		limit judge.Limit
	}{
		{"bucket", judge.Limit{Algorithm: judge.TokenBucket, Count: 4, Window: 2e6}},
		{"fixed", judge.Limit{Algorithm: judge.FixedWindow, Count: 60, Window: 2e6}},
		{"sliding", judge.Limit{Algorithm: judge.SlidingWindow, Count: 5, Window: 1e6}},
		{"log", judge.Limit{Algorithm: judge.SlidingLog, Count: 3, Window: 1e6}},
		{"pair", judge.Limit{Algorithm: judge.TokenBucket, Count: 5, Window: 1e6}},
		{"pair", judge.Limit{Algorithm: judge.TokenBucket, Count: 5, Window: 3600e6}},
	} {
		limits[l.rule] = append(limits[l.rule], w.limits(l.limit))
	}
	w.judge(judge.Check{Kind: judge.KindWaits, Subjects: "http/", Least: 5}, judge.Check{Kind: judge.KindHeaders, Subjects: "http/"})
	server := w.startServers(1, redis, waitRules, patience, limits)[0]
	return func(until time.Time) {
		var all sync.WaitGroup
		for rule := range limits {
			for client := range 2 {
				all.Go(func() {
					for time.Now().Before(until) && w.Context().Err() == nil {
						r := server.check(rule, fmt.Sprintf("http/%s/%d", rule, client), client)
						switch {
						case r.Allowed || r.Error != "":
						case rule == "pair":
							w.sleep(150 * time.Millisecond) // it is an hour, and every answer must say so
						default:
							w.sleep(time.Until(time.UnixMicro(r.Answered).Add(time.Duration(r.Header) * time.Second)))
						}
					}
				})
			}
		}
		all.Wait()
	}
}
