package storewrap

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// replyGrace is how long takeAsync waits after the deadline for the store's own error, which is the most precise.
const replyGrace = time.Millisecond

var errLate = fmt.Errorf("%w: %w: no answer in time", headgate.ErrUnavailable, headgate.ErrUnanswered)

// deadlineStore calls a store within a deadline. While the store answers, a context is enough. After a failure, calls run in
// a goroutine until the store answers again: a Redis client that has just connected to a hanging server is slow to close that
// connection, and does not watch the context while it does.
type deadlineStore struct {
	store    headgate.Store
	deadline time.Duration
	failing  atomic.Bool
	current  atomic.Pointer[sharedContext]
}

// sharedContext is the context of all calls that begin within a millisecond. A context per call would cost as much as a rule.
type sharedContext struct {
	context.Context
	deadline time.Time
	usable   time.Time // calls may begin with it until then
	done     chan struct{}
}

// shareContextFor is how long calls may begin with the same sharedContext.
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

// take calls the store.
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

// context returns a context that ends after the deadline, or up to shareContextFor earlier.
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

// takeAsync calls the store in a goroutine. It passes copies of charges and results, because it may return before the store
// does and the caller may then reuse its slices.
func (s *deadlineStore) takeAsync(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	ctx := s.context(now)
	ownCharges, ownResults := slices.Clone(charges), make([]headgate.Result, len(results))
	done := make(chan error, 1)
	go func() { done <- s.store.Take(ctx, ownCharges, ownResults) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(replyGrace):
			return failAll(results, errLate)
		}
	}
	if err == nil {
		s.failing.Store(false)
	}
	copy(results, ownResults)
	return err
}
