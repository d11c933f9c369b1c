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
	// checkEvery is the interval of checks at each node.
	checkEvery = 10 * time.Millisecond
	callers    = 50 // share the requests and are never denied
)

// observation is one check as its caller saw it.
type observation struct {
	fileNode bool // decided by the node with a rule file
	due      time.Time
	latency  time.Duration // since it was due
	err      error
	allowed  bool
	limit    int64 // that decided
}

// load sends checks to all nodes at a steady rate.
type load struct {
	stop func() // returns after the last response

	mu  sync.Mutex
	all []observation
}

func (w *world) load(ctx context.Context) *load {
	l := &load{}
	start := time.Now()
	var senders []func(context.Context)
	for i, n := range append(w.nodes[:loadedNodes:loadedNodes], w.fileNode) {
		due := start.Add(checkEvery * time.Duration(i) / (loadedNodes + 1)) // not all at once
		senders = append(senders, func(ctx context.Context) {
			for k := 0; ctx.Err() == nil; k++ {
				suite.Sleep(time.Until(due))
				a, err := n.check(context.WithoutCancel(ctx), path, fmt.Sprintf("caller-%d", k%callers))
				l.note(observation{n == w.fileNode, due, time.Since(due), err, a.Allowed, a.Count()})
				due = due.Add(checkEvery)
			}
		})
	}
	l.stop = suite.Background(ctx, senders...)
	return l
}

func (l *load) note(a observation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, a)
}

// count returns the number of checks that were due in a period, of those without a response, and of those not allowed by the limit.
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

// p99 returns the p99 latency in a period, of the nodes that follow PostgreSQL or of the node with a file.
func (l *load) p99(from, to time.Time, fileNode bool) time.Duration {
	var latencies []time.Duration
	for _, a := range l.in(from, to, fileNode) {
		latencies = append(latencies, a.latency)
	}
	return paired.Quantile(0.99, latencies)
}

func (l *load) in(from, to time.Time, fileNode bool) (some []observation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.all {
		if a.fileNode == fileNode && !a.due.Before(from) && !a.due.After(to) {
			some = append(some, a)
		}
	}
	return some
}
