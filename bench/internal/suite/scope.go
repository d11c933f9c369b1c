package paired

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// Scope lets a program use what starts real servers for tests: it is a testing.TB whose failures end the program.
type Scope struct {
	testing.TB
	cleanups []func()
	dirs     []string
}

// Close undoes what was registered, last first.
func (s *Scope) Close() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	for _, dir := range s.dirs {
		_ = os.RemoveAll(dir)
	}
	s.cleanups, s.dirs = nil, nil
}

// Exit closes the scope and ends the program: with 2 if it could not measure, with 1 if aims were missed.
func (s *Scope) Exit(missed int, err error) {
	s.Close()
	switch {
	case err != nil:
		s.Log(err)
		os.Exit(2)
	case missed > 0:
		os.Exit(1)
	}
}

// Helper does nothing.
func (s *Scope) Helper() {}

// Name is the program's.
func (s *Scope) Name() string { return "bench" }

// Context is never done.
func (s *Scope) Context() context.Context { return context.Background() }

// Failed is false: a failure ends the program.
func (s *Scope) Failed() bool { return false }

// Cleanup registers f for Close.
func (s *Scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// TempDir is removed by Close.
func (s *Scope) TempDir() string {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		s.Fatal(err)
	}
	s.dirs = append(s.dirs, dir)
	return dir
}

// Log prints to standard error.
func (s *Scope) Log(args ...any) { fmt.Fprintln(os.Stderr, args...) }

// Logf prints to standard error.
func (s *Scope) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Fatal ends the program.
func (s *Scope) Fatal(args ...any) {
	s.Log(args...)
	s.Close()
	os.Exit(2)
}

// Fatalf ends the program.
func (s *Scope) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

// Skipf ends the program: a benchmark without its server has nothing to say.
func (s *Scope) Skipf(format string, args ...any) { s.Fatalf(format, args...) }

// Skip ends the program.
func (s *Scope) Skip(args ...any) { s.Fatal(args...) }
