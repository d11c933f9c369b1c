package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// stalls is a store that stops for a moment again and again, as it does while it forks or swaps. The counter must end with
// what was admitted. The deadline is the default one: without it there is nothing to lose.
func stalls(w *world) error {
	group := w.limits(judge.Limit{Algorithm: judge.FixedWindow, Count: 1_000_000, Window: day})
	w.judge(judge.Check{Kind: judge.KindBalance, Allowance: 0.001}, judge.Check{Kind: judge.KindCeiling})
	redis, address := w.redis()
	nodes, err := w.startWorkers(2, address, 0, groups{{group}})
	if err != nil {
		return err
	}
	w.await()
	times, gap := w.some(3, 10), w.some(500, 1700)
	length := time.Second + time.Duration(times*(gap+300))*time.Millisecond
	begin := time.Now()
	until := begin.Add(length)
	// The first subject has eight callers. The others begin one after the other, so that whenever the store stops, some
	// node is about to renew a lease.
	subjects := []string{"stalls/0"}
	starts := []time.Time{begin}
	for i := range 6 * times {
		subjects = append(subjects, fmt.Sprintf("stalls/%d", i+1))
		starts = append(starts, begin.Add(time.Duration(w.rand.Int64N(int64(length*3/4)))))
	}
	done := make(chan error, 1)
	go func() {
		done <- together(nodes, func(i int, k *worker) error {
			errs := make([]error, len(subjects))
			var all sync.WaitGroup
			for at, subject := range subjects {
				callers, pause := 1, 3*time.Millisecond
				if at == 0 {
					callers, pause = 4, time.Millisecond
				}
				load := bulk{Callers: callers, Pause: pause, Start: starts[at].UnixMicro(), Until: until.UnixMicro()}
				all.Go(func() { errs[at] = k.bulk(command{Op: opLoad, Subject: subject, Caller: 4 * i, Bulk: load}) })
			}
			all.Wait()
			return errors.Join(errs...)
		})
	}()
	w.sleep(time.Second)
	for range times {
		w.sleep(time.Duration(w.rand.IntN(150)) * time.Millisecond)
		began := time.Now()
		redis.Pause()
		w.sleep(150 * time.Millisecond)
		redis.Resume()
		w.event(judge.NoteStall, 0, "", began)
		w.sleep(time.Duration(gap) * time.Millisecond)
	}
	if err := <-done; err != nil {
		return err
	}
	w.sleep(leaseTerm)
	for _, subject := range subjects {
		if err := nodes[0].peek(0, subject); err != nil {
			return err
		}
	}
	return nil
}

// leaseTerm is after how long nodes have returned what they do not need: the term of a lease and some more.
const leaseTerm = 4500 * time.Millisecond
