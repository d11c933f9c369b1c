package main

import (
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// maxCost is the largest cost of a request: refunding it resets a counter.
const maxCost = 1_000_000_000

// change lowers and raises limits on all nodes, and resets counters, while nodes hold leases. Counters keep their count, so
// afterwards no more may be admitted than the new limit allows.
func change(w *world) {
	const nodes = 4
	var before, after groups
	type act struct {
		group   int
		subject string
		reset   bool
	}
	var acts []act
	add := func(name, algorithm string, from, to int64) {
		first := w.limits(judge.Limit{Algorithm: algorithm, Count: from, Window: day}, judge.Limit{Algorithm: algorithm, Count: to, Window: day})
		acts = append(acts, act{len(before), name + "/" + algorithm, from == to})
		before, after = append(before, []int{first}), append(after, []int{first + 1})
	}
	for _, algorithm := range leasing {
		add("lowered", algorithm, 8000, 400)
		add("raised", algorithm, 400, 1500)
		add("reset", algorithm, 1500, 1500)
	}
	w.judge(judge.Check{Kind: judge.KindChange, Subjects: "lowered/"}, judge.Check{Kind: judge.KindChange, Subjects: "raised/", Least: 0.99},
		judge.Check{Kind: judge.KindReset, Subjects: "reset/", Least: 0.99})
	_, address := w.redis()
	workers := w.startWorkers(nodes, address, longDeadline, before)
	w.awaitFleet()
	until := time.Now().Add(4300 * time.Millisecond)
	// 600 requests a second for each subject, from two callers of each process.
	const period = 2 * nodes * time.Second / 600
	var all errgroup.Group
	for i, k := range workers {
		for _, a := range acts {
			all.Go(func() error {
				return k.bulk(Command{
					Op: opLoad, Group: a.group, Subject: a.subject, Caller: 2 * i,
					Bulk: Bulk{Callers: 2, Period: period, Start: time.Now().UnixMicro(), Until: until.UnixMicro()},
				})
			})
		}
	}
	w.Sleep(1200*time.Millisecond + time.Duration(w.rand.IntN(400))*time.Millisecond)
	began := time.Now()
	testenv.NoError(w, forEachWorker(workers, func(_ int, k *worker) error { return k.bulk(Command{Op: opRules, Groups: after}) }))
	for _, a := range acts {
		if !a.reset {
			w.event(began, judge.Record{Note: judge.NoteChanged, Subject: a.subject, Limit: after[a.group][0]})
			continue
		}
		began := time.Now()
		reset := Command{Op: judge.OpRefund, Group: a.group, Subject: a.subject, Cost: maxCost}
		testenv.NoError(w, workers[w.rand.IntN(nodes)].requestAndRecord(reset))
		w.event(began, judge.Record{Note: judge.NoteReset, Subject: a.subject})
	}
	testenv.NoError(w, all.Wait())
}
