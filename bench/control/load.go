package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/bench/internal/suite"
)

const (
	// checkEvery is how often each node is asked.
	checkEvery = 10 * time.Millisecond
	callers    = 50 // who share the requests, and are never denied
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
	l := &load{}
	start := time.Now()
	var askers []func(context.Context)
	for i, n := range append(w.nodes[:loaded:loaded], w.fixed) {
		due := start.Add(checkEvery * time.Duration(i) / (loaded + 1)) // not all at once
		askers = append(askers, func(ctx context.Context) {
			for k := 0; ctx.Err() == nil; k++ {
				suite.Sleep(time.Until(due))
				a, err := n.check(context.WithoutCancel(ctx), path, fmt.Sprintf("caller-%d", k%callers))
				l.note(asked{n == w.fixed, due, time.Since(due), err, a.Allowed, a.Count()})
				due = due.Add(checkEvery)
			}
		})
	}
	l.stop = suite.Background(ctx, askers...)
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
	return paired.Quantile(0.99, took)
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
