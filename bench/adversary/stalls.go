package main

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// stalls pauses the store repeatedly for 150 ms, as a fork or swapping does. The final count must equal the admitted units. The
// deadline is the default: with a long one no call would be lost.
func stalls(w *world) {
	group := w.limits(judge.Limit{Algorithm: judge.FixedWindow, Count: 1_000_000, Window: day})
	w.judge(judge.Check{Kind: judge.KindBalance, Allowance: 0.001}, judge.Check{Kind: judge.KindCeiling})
	redis, address := w.redis()
	nodes := w.startWorkers(2, address, 0, groups{{group}})
	w.awaitFleet()
	times, gap := w.some(3, 10), w.some(500, 1700)
	length := time.Second + time.Duration(times*(gap+300))*time.Millisecond
	begin := time.Now()
	until := begin.Add(length)
	// The first subject has eight callers. The others start at different times, so that whenever the store pauses, some node is
	// about to renew a lease.
	subjects := []string{"stalls/0"}
	starts := []time.Time{begin}
	for i := range 6 * times {
		subjects = append(subjects, fmt.Sprintf("stalls/%d", i+1))
		starts = append(starts, begin.Add(time.Duration(w.rand.Int64N(int64(length*3/4)))))
	}
	var all errgroup.Group
	for i, k := range nodes {
		for at, subject := range subjects {
			callers, pause := 1, 3*time.Millisecond
			if at == 0 {
				callers, pause = 4, time.Millisecond
			}
			load := Bulk{Callers: callers, Pause: pause, Start: starts[at].UnixMicro(), Until: until.UnixMicro()}
			all.Go(func() error { return k.bulk(Command{Op: opLoad, Subject: subject, Caller: 4 * i, Bulk: load}) })
		}
	}
	w.Sleep(time.Second)
	for range times {
		w.Sleep(time.Duration(w.rand.IntN(150)) * time.Millisecond)
		began := time.Now()
		redis.Pause()
		w.Sleep(150 * time.Millisecond)
		redis.Resume()
		w.event(began, judge.Record{Note: judge.NoteStall})
		w.Sleep(time.Duration(gap) * time.Millisecond)
	}
	testenv.NoError(w, all.Wait())
	w.Sleep(leaseTerm)
	for _, subject := range subjects {
		nodes[0].peek(0, subject)
	}
}

// leaseTerm is how long nodes need to return unused units: the term of a lease and a margin.
const leaseTerm = 4500 * time.Millisecond
