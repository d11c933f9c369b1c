package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
)

const (
	// checkEvery is how often each node is asked.
	checkEvery = 10 * time.Millisecond
	callers    = 50 // who share the requests, and are never refused
)

// asked is one check as its caller saw it.
type asked struct {
	fixed   bool // by the node with a file
	due     time.Time
	latency time.Duration // since it was due
	err     error
	allowed bool
	limit   int64 // that decided
}

// load asks all nodes at a steady rate.
type load struct {
	stop func() // returns after the last answer

	mu  sync.Mutex
	all []asked
}

func (w *world) load(ctx context.Context) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{}
	var running sync.WaitGroup
	l.stop = func() {
		cancel()
		running.Wait()
	}
	start := time.Now()
	for i, n := range append(w.nodes[:loaded:loaded], w.fixed) {
		due := start.Add(checkEvery * time.Duration(i) / (loaded + 1)) // not all at once
		running.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				paired.Sleep(time.Until(due))
				a, err := n.check(context.WithoutCancel(ctx), path, fmt.Sprintf("caller-%d", k%callers))
				l.note(asked{n == w.fixed, due, time.Since(due), err, a.Allowed, a.count()})
				due = due.Add(checkEvery)
			}
		})
	}
	return l
}

func (l *load) note(a asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, a)
}

// count is how many were due in a time, how many of them got no answer, and how many another one than that a limit allows it.
func (l *load) count(from, to time.Time, limit int64) (checks, errs, others int) {
	for _, a := range l.in(from, to, false) {
		checks++
		switch {
		case a.err != nil:
			errs++
		case !a.allowed || a.limit != limit:
			others++
		}
	}
	return checks, errs, others
}

// p99 is that of the nodes, or of the one with a file, in a time.
func (l *load) p99(from, to time.Time, fixed bool) time.Duration {
	var took []time.Duration
	for _, a := range l.in(from, to, fixed) {
		took = append(took, a.latency)
	}
	return quantile(0.99, took)
}

func (l *load) in(from, to time.Time, fixed bool) (some []asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.all {
		if a.fixed == fixed && !a.due.Before(from) && !a.due.After(to) {
			some = append(some, a)
		}
	}
	return some
}
