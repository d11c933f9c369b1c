package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// reservations has callers reserve on one node and settle on another. Some settle twice and some never.
func reservations(w *world) {
	const each = 4
	var g groups
	for _, algorithm := range []string{judge.FixedWindow, judge.TokenBucket, judge.SlidingWindow, judge.SlidingLog} {
		g = append(g, []int{w.limits(judge.Limit{Algorithm: algorithm, Count: 1000, Window: day})})
	}
	w.judge(judge.Check{Kind: judge.KindCommits})
	_, address := w.redis()
	nodes := w.startWorkers(2, address, longDeadline, g)
	until := time.Now().Add(time.Duration(w.some(2, 6)) * time.Second)
	var all errgroup.Group
	for i := range each * len(g) {
		c := &reserver{
			nodes: nodes, group: i % len(g), caller: i, random: rand.New(rand.NewPCG(w.header.Seed, uint64(i))),
			subject: w.header.Limits[g[i%len(g)][0]].Algorithm,
		}
		all.Go(func() (err error) {
			for n := 0; err == nil && time.Now().Before(until) && w.Context().Err() == nil; n++ {
				err = c.reserveAndSettle(w, n)
			}
			return err
		})
	}
	testenv.NoError(w, all.Wait())
	w.Sleep(abandonedHold + 200*time.Millisecond)
	for i := range g {
		nodes[0].peek(i, w.header.Limits[g[i][0]].Algorithm)
	}
}

const (
	// abandonedHold is the hold of a reservation that is never settled, settledHold that of all others.
	abandonedHold, settledHold = 300 * time.Millisecond, time.Minute
)

// reserver is one caller of several nodes.
type reserver struct {
	nodes   []*worker
	group   int
	caller  int
	subject string
	random  *rand.Rand
}

// reserveAndSettle makes one reservation and settles it, or abandons it.
func (b *reserver) reserveAndSettle(w *world, n int) error {
	cost, hold := 1+b.random.Int64N(20), settledHold
	// A sliding log cannot hold units: it is charged at once, and stays charged if the caller never settles.
	abandons := b.random.IntN(6) == 0 && b.subject != judge.SlidingLog
	if abandons {
		hold = abandonedHold
	}
	token := fmt.Sprintf("%d/%d", b.caller, n)
	r, err := b.do(w, Command{Op: judge.OpReserve, Cost: cost, Hold: hold}, token)
	if err != nil || !r.Record.Allowed {
		w.Sleep(5 * time.Millisecond)
		return err
	}
	w.Sleep(time.Duration(b.random.IntN(10)) * time.Millisecond)
	if abandons {
		return nil
	}
	settle := Command{Op: judge.OpCommit, Cost: b.random.Int64N(cost) / 4, Token: r.Token}
	if settle.Cost == 0 {
		settle.Op = judge.OpCancel
	}
	for range 1 + b.random.IntN(3) {
		if _, err := b.do(w, settle, token); err != nil {
			return err
		}
		if b.random.IntN(3) == 0 {
			settle.Op, settle.Cost = judge.OpCancel, 0 // too late: the commit stays
		}
	}
	return nil
}

func (b *reserver) do(w *world, c Command, token string) (Reply, error) {
	c.Group, c.Subject, c.Caller = b.group, b.subject, b.caller
	r, err := b.nodes[b.random.IntN(len(b.nodes))].do(c)
	if err == nil {
		r.Record.Token = token
		w.addRecords(r.Record)
	}
	return r, err
}
