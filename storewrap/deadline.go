package storewrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// answerGrace is for the store to say itself what became of the charges, which it knows best.
const answerGrace = time.Millisecond

var (
	errLate       = fmt.Errorf("%w: %w: no answer in time", headgate.ErrUnavailable, headgate.ErrUnanswered)
	errLateBehind = fmt.Errorf("%w: %w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered, errBehind)
	// errBehind says that a deadline passed while this process was too busy to read answers.
	errBehind = fmt.Errorf("%w: this process is too busy to read answers", context.DeadlineExceeded)
)

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
	usable  time.Time // until then calls may begin with it
	waiting atomic.Int64
	done    chan struct{}
	err     error // once it is done
}

const shareContextFor = time.Millisecond

func (c *sharedContext) Done() <-chan struct{} { return c.done }

func (c *sharedContext) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

func (s *deadlineStore) take(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	if s.failing.Load() {
		return s.takeAsync(now, charges, results)
	}
	ctx := s.context(now)
	ctx.waiting.Add(1)
	err := s.store.Take(ctx, charges, results)
	ctx.waiting.Add(-1)
	if err != nil {
		s.failing.Store(true)
	}
	return err
}

// context ends after the deadline, or up to shareContextFor before.
func (s *deadlineStore) context(now time.Time) *sharedContext {
	if c := s.current.Load(); c != nil && now.Before(c.usable) {
		return c
	}
	c := &sharedContext{Context: context.Background(), done: make(chan struct{}), usable: now.Add(shareContextFor)}
	time.AfterFunc(s.deadline, func() { c.expire(now.Add(s.deadline), s.deadline) })
	s.current.Store(c)
	return c
}

// expire ends the calls that are not answered yet. An answer is not late if it has come and this process was too busy to read it, or
// to send the call: as long as the process is behind, calls go on, up to maxGrace deadlines.
func (c *sharedContext) expire(due time.Time, deadline time.Duration) {
	c.err = context.DeadlineExceeded
	began := time.Now()
	behind := began.Sub(due)
	for c.waiting.Load() > 0 {
		if behind = max(behind, lag()); behind < behindAfter {
			break
		}
		if time.Since(began) >= maxGrace*deadline {
			c.err = errBehind
			break
		}
		behind = 0
	}
	close(c.done)
}

// takeAsync asks with charges and results of its own: the caller's are no longer ours once it has returned.
func (s *deadlineStore) takeAsync(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	ctx := s.context(now)
	asked, said := slices.Clone(charges), make([]headgate.Result, len(results))
	answered := make(chan error, 1)
	ctx.waiting.Add(1)
	go func() {
		err := s.store.Take(ctx, asked, said)
		ctx.waiting.Add(-1)
		answered <- err
	}()
	var err error
	select {
	case err = <-answered:
	case <-ctx.Done():
		late := time.NewTimer(answerGrace)
		defer late.Stop()
		select {
		case err = <-answered:
		case <-late.C:
			if errors.Is(ctx.Err(), errBehind) {
				return failAll(results, errLateBehind)
			}
			return failAll(results, errLate)
		}
	}
	if err == nil {
		s.failing.Store(false)
	}
	copy(results, said)
	return err
}
