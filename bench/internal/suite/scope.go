// Package suite runs benchmark programs that are written like tests: they start real servers, stop at the first failure, and
// end with a verdict on each target. It knows nothing of what is measured.
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

// Scope is a testing.TB for programs. It is one part of a run and owns what that part started.
type Scope struct {
	testing.TB
	ctx context.Context //nolint:containedctx // as in testing.T

	mu       sync.Mutex
	failure  error
	cleanups []func()
}

// Main runs a suite and exits if it did not succeed: with status 2 if it failed, with 1 if it missed targets.
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

// Run calls f with a scope of its own, and returns the error that ended it early.
func Run(ctx context.Context, f func(*Scope)) error {
	s := &Scope{ctx: ctx}
	done := make(chan struct{})
	go func() { // Fatal may end this goroutine
		defer close(done)
		defer s.close()
		f(s)
	}()
	<-done
	return errors.Join(s.failure, ctx.Err())
}

// Run calls f with a scope of its own, as T.Run does, and returns the error that ended it early.
func (s *Scope) Run(f func(*Scope)) error { return Run(s.ctx, f) }

// close runs the registered cleanups, the last one first.
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

// Context returns a context that ends when the program is interrupted.
func (s *Scope) Context() context.Context { return s.ctx }

// Sleep sleeps for d, or until the context ends.
func (s *Scope) Sleep(d time.Duration) { SleepUntil(s.ctx, time.Now().Add(d)) }

// Failed returns false, so that servers' logs are not printed.
func (s *Scope) Failed() bool { return false }

// Cleanup registers f to run at the end of the scope.
func (s *Scope) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// TempDir returns a new directory that is removed at the end of the scope.
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

// Error records a failure.
func (s *Scope) Error(args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = errors.Join(s.failure, errors.New(fmt.Sprint(args...)))
}

// Errorf records a failure.
func (s *Scope) Errorf(format string, args ...any) { s.Error(fmt.Sprintf(format, args...)) }

// Fatal records a failure and ends the calling goroutine: the scope, if the scope's function called it.
func (s *Scope) Fatal(args ...any) {
	s.Error(args...)
	runtime.Goexit()
}

// Fatalf formats a failure, records it and ends the calling goroutine.
func (s *Scope) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

// Skipf calls Fatalf: a benchmark cannot run without its server.
func (s *Scope) Skipf(format string, args ...any) { s.Fatalf(format, args...) }
