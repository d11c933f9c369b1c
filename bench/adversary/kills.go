package main

import (
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// kills kills nodes, or pauses them for up to 1.8 seconds, at random times. The units that they held may be lost; no unit may be
// admitted twice.
func kills(w *world) {
	const nodes, each = 4, 8
	limit := judge.Limit{Algorithm: judge.FixedWindow, Count: 1000, Window: 1e6, Clock: true}
	g := groups{{w.limits(limit)}}
	// A node that was paused finds its calls unanswered, and decides them by its local fallback share.
	w.judge(judge.Check{Kind: judge.KindCeiling, Local: 1. / nodes}, judge.Check{Kind: judge.KindLosses, Allowance: 0.05})
	_, address := w.redis()
	workers := w.startWorkers(nodes, address, longDeadline, g)
	w.awaitFleet()
	until := time.Now().Add(time.Duration(w.some(5, 30)) * time.Second)
	// Twice the limit, so that three nodes still send enough.
	period := time.Duration(float64(nodes*each) / (2 * float64(limit.Count)) * float64(time.Second))
	var all errgroup.Group
	load := func(k *worker, start time.Time) {
		all.Go(func() error {
			err := k.bulk(Command{
				Op: opLoad, Subject: "kills",
				Bulk: Bulk{Callers: each, Period: period, Start: start.UnixMicro(), Until: until.UnixMicro()},
			})
			if ended(err) {
				return nil
			}
			return err
		})
	}
	for _, k := range workers {
		load(k, time.Now())
	}
	live := slices.Clone(workers)
	for n := 0; time.Until(until) > time.Second && w.Context().Err() == nil; n++ {
		w.Sleep(time.Duration(400+w.rand.IntN(900)) * time.Millisecond)
		i, began := w.rand.IntN(nodes), time.Now()
		if n%2 == 0 {
			live[i].Kill()
			w.event(began, judge.Record{Note: judge.NoteKill, Process: live[i].spec.Process})
			live[i] = w.startWorkers(1, address, longDeadline, g)[0]
			load(live[i], time.Now())
			continue
		}
		live[i].Pause()
		w.Sleep(time.Duration(300+w.rand.IntN(1500)) * time.Millisecond)
		live[i].Resume()
		w.event(began, judge.Record{Note: judge.NoteStop, Process: live[i].spec.Process})
	}
	testenv.NoError(w, all.Wait())
}
