package main

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// waits has clients of one node retry after RetryAfter, and shortly before it. The rules are random: one to five limits that
// apply together.
func waits(w *world) {
	var g groups
	var drawn []int
	for i := range 24 {
		var group []int
		for range 1 + w.rand.IntN(5) {
			group = append(group, w.limits(w.drawLimit()))
		}
		g, drawn = append(g, group), append(drawn, i)
	}
	// RetryAfter is the longer of two waits, however often the client retries.
	second, hour := judge.Limit{Algorithm: judge.TokenBucket, Count: 5, Window: 1e6}, judge.Limit{Algorithm: judge.TokenBucket, Count: 5, Window: 3600e6}
	pair := len(g)
	g = append(g, []int{w.limits(second), w.limits(hour)})
	w.judge(judge.Check{Kind: judge.KindWaits, Subjects: "drawn/", Least: 20}, judge.Check{Kind: judge.KindWaits, Subjects: "pair/"})
	_, address := w.redis()
	nodes := w.startWorkers(1, address, longDeadline, g)
	serve := w.servedWaits(address)
	until := time.Now().Add(time.Duration(w.some(4, 20)) * time.Second)
	var all errgroup.Group
	all.Go(func() error {
		return nodes[0].bulk(Command{
			Op: opRetry, Subject: "drawn/",
			Bulk: Bulk{Seed: w.rand.Uint64(), Callers: 12, Groups: drawn, Until: until.UnixMicro()},
		})
	})
	all.Go(func() error { // retries an exhausted limit, faster and slower
		for i := 0; time.Now().Before(until); i++ {
			if err := nodes[0].requestAndRecord(Command{Op: judge.OpCheck, Group: pair, Subject: "pair/1", Cost: 1}); err != nil {
				return err
			}
			w.Sleep(time.Duration(i%40) * time.Millisecond)
		}
		return nil
	})
	serve(until)
	testenv.NoError(w, all.Wait())
}

// drawLimit returns a random limit with a window of at most two seconds. Most are too small to be leased.
func (w *world) drawLimit() judge.Limit {
	l := judge.Limit{Count: 1 + w.rand.Int64N(30), Window: 50_000 + w.rand.Int64N(1_950_000)}
	if w.rand.IntN(4) == 0 {
		l.Count = 40 + w.rand.Int64N(400)
	}
	switch w.rand.IntN(4) {
	case 0:
		l.Algorithm = judge.TokenBucket
		if w.rand.IntN(2) == 0 {
			l.Burst = 1 + w.rand.Int64N(l.Count)
		}
	case 1:
		l.Algorithm, l.Clock = judge.FixedWindow, w.rand.IntN(2) == 0
	case 2:
		l.Algorithm = judge.SlidingWindow
	default:
		l.Algorithm = judge.SlidingLog
	}
	return l
}

// servedWaits starts a server and returns a function that does the same as waits over HTTP: clients retry after the Retry-After of
// their denial.
func (w *world) servedWaits(redis string) func(until time.Time) {
	rules := map[string][]judge.Limit{
		"bucket":  {{Algorithm: judge.TokenBucket, Count: 4, Window: 2e6}},
		"fixed":   {{Algorithm: judge.FixedWindow, Count: 60, Window: 2e6}},
		"sliding": {{Algorithm: judge.SlidingWindow, Count: 5, Window: 1e6}},
		"log":     {{Algorithm: judge.SlidingLog, Count: 3, Window: 1e6}},
		"pair":    {{Algorithm: judge.TokenBucket, Count: 5, Window: 1e6}, {Algorithm: judge.TokenBucket, Count: 5, Window: 3600e6}},
	}
	w.judge(judge.Check{Kind: judge.KindWaits, Subjects: "http/", Least: 5}, judge.Check{Kind: judge.KindHeaders, Subjects: "http/"})
	server := w.startServers(1, redis, longDeadline, rules)[0]
	return func(until time.Time) {
		var all sync.WaitGroup
		for rule := range rules {
			for client := range 2 {
				all.Go(func() {
					for time.Now().Before(until) && w.Context().Err() == nil {
						r := server.check(rule, fmt.Sprintf("http/%s/%d", rule, client), client)
						switch {
						case r.Allowed || r.Error != "":
						case rule == "pair":
							w.Sleep(150 * time.Millisecond) // the wait is an hour, and every response must report it
						default:
							w.Sleep(time.Until(time.UnixMicro(r.Received).Add(time.Duration(r.Header) * time.Second)))
						}
					}
				})
			}
		}
		all.Wait()
	}
}
