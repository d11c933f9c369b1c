package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
)

// kills is nodes that die, or stop for a while, whenever it is least convenient. What they held may be lost; nothing may be
// admitted twice.
func kills(w *world) error {
	const nodes, each = 4, 8
	limit := judge.Limit{Algorithm: judge.FixedWindow, Count: 1000, Window: 1e6, Clock: true}
	g := groups{{w.limits(limit)}}
	// A node that was stopped finds its calls unanswered, and decides those by its share.
	w.judge(judge.Check{Kind: judge.KindCeiling, Local: 1. / nodes}, judge.Check{Kind: judge.KindLosses, Allowance: 0.05})
	_, address := w.redis()
	workers, err := w.startWorkers(nodes, address, patience, g)
	if err != nil {
		return err
	}
	w.await()
	until := time.Now().Add(time.Duration(w.some(5, 30)) * time.Second)
	// Twice as much as the limit, of which three nodes still send enough.
	period := time.Duration(float64(nodes*each) / (2 * float64(limit.Count)) * float64(time.Second))
	var all sync.WaitGroup
	errs := make(chan error, 1000)
	load := func(k *worker, start time.Time) {
		all.Go(func() {
			errs <- k.bulk(command{
				Op: opLoad, Subject: "kills",
				Bulk: bulk{Callers: each, Period: period, Start: start.UnixMicro(), Until: until.UnixMicro()},
			})
		})
	}
	for _, k := range workers {
		load(k, time.Now())
	}
	live := slices.Clone(workers)
	for n := 0; time.Until(until) > time.Second && w.ctx.Err() == nil; n++ {
		w.sleep(time.Duration(400+w.rand.IntN(900)) * time.Millisecond)
		i, began := w.rand.IntN(nodes), time.Now()
		if n%2 == 0 {
			live[i].kill()
			w.event(judge.NoteKill, live[i].spec.Process, "", began)
			fresh, err := w.startWorkers(1, address, patience, g)
			if err != nil {
				return err
			}
			live[i] = fresh[0]
			load(live[i], time.Now())
			continue
		}
		live[i].signal(syscall.SIGSTOP)
		w.sleep(time.Duration(300+w.rand.IntN(1500)) * time.Millisecond)
		live[i].signal(syscall.SIGCONT)
		w.event(judge.NoteStop, live[i].spec.Process, "", began)
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil && !errors.Is(err, errWorkerEnded) {
			return fmt.Errorf("load: %w", err)
		}
	}
	return nil
}
