// Package suite makes a program of what is written like a test: it starts real servers, stops at the first thing that fails, and
// ends with a verdict on each aim. It knows nothing of what is measured.
package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Scope is a testing.TB for programs: a part of a run, with what it has started.
type Scope struct {
	testing.TB
	ctx context.Context //nolint:containedctx // as in testing.T

	mu       sync.Mutex
	failure  error
	cleanups []func()
}

// Main runs a suite and ends the program: with 2 if it failed, with 1 if aims were missed.
func Main(run func(*Scope) (missed int)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed := 0
	err := Run(ctx, func(s *Scope) { missed = run(s) })
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case missed > 0:
		os.Exit(1)
	}
}

// Run calls f with a scope of its own, and returns what has ended it early.
func Run(ctx context.Context, f func(*Scope)) error {
	s := &Scope{ctx: ctx}
	done := make(chan struct{})
	go func() { // which Fatal may end
		defer close(done)
		defer s.close()
		f(s)
	}()
	<-done
	return errors.Join(s.failure, ctx.Err())
}

// Run calls f with a scope of its own, as T.Run does, and returns what has ended it early.
func (s *Scope) Run(f func(*Scope)) error { return Run(s.ctx, f) }

// close undoes what was registered, last first.
func (s *Scope) close() {
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		undo := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		undo()
	}
}

// Helper does nothing.
func (s *Scope) Helper() {}

// Context ends when the program is told to.
func (s *Scope) Context() context.Context { return s.ctx }

// Sleep ends early with the context.
func (s *Scope) Sleep(d time.Duration) { SleepUntil(s.ctx, time.Now().Add(d)) }

// Failed is false: nobody reads the logs of servers here.
func (s *Scope) Failed() bool { return false }

// Cleanup registers f for the end of the scope.
func (s *Scope) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// TempDir is removed with the scope.
func (s *Scope) TempDir() string {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Log prints to standard error.
func (s *Scope) Log(args ...any) { fmt.Fprintln(os.Stderr, args...) }

// Logf prints to standard error.
func (s *Scope) Logf(format string, args ...any) { s.Log(fmt.Sprintf(format, args...)) }

// Error notes a failure.
func (s *Scope) Error(args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = errors.Join(s.failure, errors.New(fmt.Sprint(args...)))
}

// Errorf notes a failure.
func (s *Scope) Errorf(format string, args ...any) { s.Error(fmt.Sprintf(format, args...)) }

// Fatal notes a failure and ends the scope, or the goroutine that calls it.
func (s *Scope) Fatal(args ...any) {
	s.Error(args...)
	runtime.Goexit()
}

// Fatalf is Fatal with a format.
func (s *Scope) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

// Skipf is Fatalf: a benchmark without its server has nothing to say.
func (s *Scope) Skipf(format string, args ...any) { s.Fatalf(format, args...) }
