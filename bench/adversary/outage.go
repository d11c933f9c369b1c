package main

import (
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// outage kills the store under three servers and starts it again with its data. Some subjects are in use all the time,
// others appear only while the store is dead.
func outage(w *world) {
	// Limits that must keep working without a store: short and long windows, and counts that three nodes cannot share evenly.
	rules := map[string][]judge.Limit{
		"bucket":  {{Algorithm: judge.TokenBucket, Count: 100, Window: 10e6}},
		"clock":   {{Algorithm: judge.FixedWindow, Count: 200, Window: 2e6, Clock: true}},
		"minutes": {{Algorithm: judge.TokenBucket, Count: 50, Window: 300e6}},
		"day":     {{Algorithm: judge.TokenBucket, Count: 100, Window: day}},
	}
	w.judge(judge.Check{Kind: judge.KindOutage, Least: 0.6})
	redis, address := w.redis("--appendonly", "yes", "--appendfsync", "always")
	servers := w.startServers(3, address, 0, rules)
	w.awaitFleet()
	var all sync.WaitGroup
	stop := make(chan struct{})
	// Each client uses the servers in turn and sends three times what its limit allows.
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
	w.Sleep(1500 * time.Millisecond)

	began := time.Now()
	redis.Kill()
	w.event(began, judge.Record{Note: judge.NoteDown})
	for rule := range rules {
		all.Go(func() { client(rule, "fresh/"+rule, 6*time.Millisecond) })
	}
	w.Sleep(5 * time.Second)
	began = time.Now()
	redis.Restart(w)
	w.event(began, judge.Record{Note: judge.NoteUp})
	w.Sleep(time.Duration(w.some(1, 7)) * time.Second)
	close(stop)
	all.Wait()
}
