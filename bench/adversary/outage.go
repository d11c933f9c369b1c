package main

import (
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// outageRules are the limits that must go on without a store: short and long windows, and numbers that three nodes cannot
// share evenly.
const outageRules = `rules:
  - {id: bucket, match: {route: bucket}, by: [user], limit: 100/10s}
  - {id: clock, match: {route: clock}, by: [user], algorithm: fixed_window, limit: {rate: 200/2s, align: clock}}
  - {id: minutes, match: {route: minutes}, by: [user], limit: 50/5m}
  - {id: day, match: {route: day}, by: [user], limit: 100/day}
`

// outage kills the store under three servers and starts it again with its data. Some subjects are in use all the time,
// others appear only while the store is dead.
func outage(w *world) {
	limits := map[string][]int{
		"bucket":  {w.limits(judge.Limit{Algorithm: judge.TokenBucket, Count: 100, Window: 10e6})},
		"clock":   {w.limits(judge.Limit{Algorithm: judge.FixedWindow, Count: 200, Window: 2e6, Clock: true})},
		"minutes": {w.limits(judge.Limit{Algorithm: judge.TokenBucket, Count: 50, Window: 300e6})},
		"day":     {w.limits(judge.Limit{Algorithm: judge.TokenBucket, Count: 100, Window: day})},
	}
	w.judge(judge.Check{Kind: judge.KindOutage, Least: 0.6})
	redis, address := w.redis("--appendonly", "yes", "--appendfsync", "always")
	servers := w.startServers(3, address, outageRules, 0, limits)
	w.await()
	var all sync.WaitGroup
	stop := make(chan struct{})
	// Each client asks one server after the other, in all three times as often as the limit lets it.
	client := func(rule, subject string, period time.Duration) {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
				servers[i%len(servers)].check(rule, subject, 0)
			}
		}
	}
	all.Go(func() { client("bucket", "used/bucket", 33*time.Millisecond) })
	all.Go(func() { client("clock", "used/clock", 4*time.Millisecond) })
	w.sleep(1500 * time.Millisecond)

	began := time.Now()
	redis.Kill()
	w.event(judge.NoteDown, 0, "", began)
	for rule := range limits {
		all.Go(func() { client(rule, "fresh/"+rule, 6*time.Millisecond) })
	}
	w.sleep(5 * time.Second)
	began = time.Now()
	redis.Restart(w)
	w.event(judge.NoteUp, 0, "", began)
	w.sleep(time.Duration(w.some(1, 7)) * time.Second)
	close(stop)
	all.Wait()
}
