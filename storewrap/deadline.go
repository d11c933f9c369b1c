package storewrap

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// answerGrace is for the store to say itself what became of the charges, which it knows best.
const answerGrace = time.Millisecond

var errLate = fmt.Errorf("%w: %w: no answer in time", headgate.ErrUnavailable, headgate.ErrUnanswered)

// deadlineStore asks a store, up to a deadline. While the store answers, a context is enough. After a failure it is asked in a
// goroutine until it answers again: a client that finds itself with a new connection to a server that hangs takes its time to
// close it, whatever the context says.
type deadlineStore struct {
	store    headgate.Store
	deadline time.Duration
	failing  atomic.Bool
	current  atomic.Pointer[sharedContext]
}

// sharedContext is the context of all calls that begin within a millisecond: one for each would cost as much as a rule.
type sharedContext struct {
	context.Context
	deadline time.Time
	usable   time.Time // until then calls may begin with it
	done     chan struct{}
}

const shareContextFor = time.Millisecond

func (c *sharedContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *sharedContext) Done() <-chan struct{}       { return c.done }

func (c *sharedContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (s *deadlineStore) take(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	if s.failing.Load() {
		return s.takeAsync(now, charges, results)
	}
	err := s.store.Take(s.context(now), charges, results)
	if err != nil {
		s.failing.Store(true)
	}
	return err
}

// context ends after the deadline, or up to shareContextFor before.
func (s *deadlineStore) context(now time.Time) context.Context {
	if c := s.current.Load(); c != nil && now.Before(c.usable) {
		return c
	}
	c := &sharedContext{
		Context: context.Background(), done: make(chan struct{}), deadline: now.Add(s.deadline), usable: now.Add(shareContextFor),
	}
	time.AfterFunc(s.deadline, func() { close(c.done) })
	s.current.Store(c)
	return c
}

// takeAsync asks with charges and results of its own: the caller's are no longer ours once it has returned.
func (s *deadlineStore) takeAsync(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	ctx := s.context(now)
	asked, said := slices.Clone(charges), make([]headgate.Result, len(results))
	answered := make(chan error, 1)
	go func() { answered <- s.store.Take(ctx, asked, said) }()
	var err error
	select {
	case err = <-answered:
	case <-ctx.Done():
		select {
		case err = <-answered:
		case <-time.After(answerGrace):
			return failAll(results, errLate)
		}
	}
	if err == nil {
		s.failing.Store(false)
	}
	copy(results, said)
	return err
}
