package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// reservations is callers who reserve on one node and settle on another, some of them twice and some of them never.
func reservations(w *world) {
	const each = 4
	var g groups
	for _, algorithm := range []string{judge.FixedWindow, judge.TokenBucket, judge.SlidingWindow, judge.SlidingLog} {
		g = append(g, []int{w.limits(judge.Limit{Algorithm: algorithm, Count: 1000, Window: day})})
	}
	w.judge(judge.Check{Kind: judge.KindCommits})
	_, address := w.redis()
	nodes := w.startWorkers(2, address, patience, g)
	until := time.Now().Add(time.Duration(w.some(2, 6)) * time.Second)
	var all errgroup.Group
	for i := range each * len(g) {
		c := &booker{
			nodes: nodes, group: i % len(g), caller: i, random: rand.New(rand.NewPCG(w.header.Seed, uint64(i))),
			subject: w.header.Limits[g[i%len(g)][0]].Algorithm,
		}
		all.Go(func() (err error) {
			for n := 0; err == nil && time.Now().Before(until) && w.Context().Err() == nil; n++ {
				err = c.book(w, n)
			}
			return err
		})
	}
	testenv.NoError(w, all.Wait())
	w.Sleep(abandoned + 200*time.Millisecond)
	for i := range g {
		nodes[0].peek(i, w.header.Limits[g[i][0]].Algorithm)
	}
}

const (
	// abandoned is how long units are held for a caller who never settles, and settled for all others.
	abandoned, settled = 300 * time.Millisecond, time.Minute
)

// booker is one caller of several nodes.
type booker struct {
	nodes   []*worker
	group   int
	caller  int
	subject string
	random  *rand.Rand
}

// book makes one reservation and settles it, or does not.
func (b *booker) book(w *world, n int) error {
	cost, hold := 1+b.random.Int64N(20), settled
	// A limit that holds nothing is charged at once, and stays so if the caller never settles.
	forgets := b.random.IntN(6) == 0 && b.subject != judge.SlidingLog
	if forgets {
		hold = abandoned
	}
	token := fmt.Sprintf("%d/%d", b.caller, n)
	r, err := b.do(w, Command{Op: judge.OpReserve, Cost: cost, Hold: hold}, token)
	if err != nil || !r.Record.Allowed {
		w.Sleep(5 * time.Millisecond)
		return err
	}
	w.Sleep(time.Duration(b.random.IntN(10)) * time.Millisecond)
	if forgets {
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
			settle.Op, settle.Cost = judge.OpCancel, 0 // too late: what was committed stays so
		}
	}
	return nil
}

func (b *booker) do(w *world, c Command, token string) (Reply, error) {
	c.Group, c.Subject, c.Caller = b.group, b.subject, b.caller
	r, err := b.nodes[b.random.IntN(len(b.nodes))].do(c)
	if err == nil {
		r.Record.Token = token
		w.keep(r.Record)
	}
	return r, err
}
