package storewrap

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// grace is for the store to say itself what became of the charges, which it knows best.
const grace = time.Millisecond

// errLate is of charges of which nobody knows what became of them.
var errLate = fmt.Errorf("%w: %w: no answer in time", headgate.ErrUnavailable, headgate.ErrUnanswered)

// caller asks a store, and waits only so long. While the store answers, its context is enough. After it has failed, it is
// asked in a goroutine until it answers again: a client that finds itself with a new connection to a server that hangs
// takes its time to close it, whatever the context says.
type caller struct {
	store    headgate.Store
	deadline time.Duration
	failing  atomic.Bool
	current  atomic.Pointer[moment]
}

// moment is a context for all calls that begin within a millisecond: one for each would cost as much as a rule.
type moment struct {
	context.Context
	at    time.Time
	until time.Time // when it is too late to use it
	done  chan struct{}
}

const momentLength = time.Millisecond

func (m *moment) Deadline() (time.Time, bool) { return m.at, true }
func (m *moment) Done() <-chan struct{}       { return m.done }

func (m *moment) Err() error {
	select {
	case <-m.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// take asks the store.
func (c *caller) take(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	if c.failing.Load() {
		return c.takeAside(now, charges, results)
	}
	err := c.store.Take(c.soon(now), charges, results)
	if err != nil {
		c.failing.Store(true)
	}
	return err
}

// soon ends after the deadline, or up to momentLength before.
func (c *caller) soon(now time.Time) context.Context {
	if m := c.current.Load(); m != nil && now.Before(m.until) {
		return m
	}
	m := &moment{Context: context.Background(), done: make(chan struct{}), at: now.Add(c.deadline), until: now.Add(momentLength)}
	time.AfterFunc(c.deadline, func() { close(m.done) })
	c.current.Store(m)
	return m
}

// takeAside asks with charges and results of its own, since the caller's are no longer ours once it has gone on.
func (c *caller) takeAside(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	ctx := c.soon(now)
	asked, said := slices.Clone(charges), make([]headgate.Result, len(results))
	answered := make(chan error, 1)
	go func() { answered <- c.store.Take(ctx, asked, said) }()
	var err error
	select {
	case err = <-answered:
	case <-ctx.Done():
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case err = <-answered:
		case <-late.C:
			return tell(results, errLate)
		}
	}
	if err == nil {
		c.failing.Store(false)
	}
	copy(results, said)
	return err
}
