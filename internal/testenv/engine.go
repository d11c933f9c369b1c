// Package testenv starts and stops real servers for tests, on free ports of
// 127.0.0.1, and can kill, pause, fail over and reshard them.
//
// It knows processes, ports and the few commands that build and bend a
// standalone server, a master set under Sentinel and a Cluster. It does not
// know what the servers store: it has no opinion on keys or scripts, and its
// own small client is for setting the scene, not for the code under test.
//
// Servers need Redis 7.0 or Valkey 8.0 and keep nothing on disk between
// tests. Functions that take a testing.TB may end the test and are therefore
// for the test's own goroutine; the rest may be called from anywhere.
package testenv

import (
	"os"
	"testing"
)

// Engine is a server implementation: which binaries to run.
type Engine struct{ name string }

// The engines that tests run against.
var (
	Redis  = Engine{"redis"}
	Valkey = Engine{"valkey"}
)

func (e Engine) String() string { return e.name }

// binary finds the server. Sentinel is the same program with another flag.
func (e Engine) binary(t testing.TB) string {
	t.Helper()
	if e != Redis {
		Long(t)
	}
	return Find(t, e.name+"-server")
}

// Long skips a test when tests run with -short, as "make test" has them: for a test of more than about two seconds, or of
// more than the code under test and one Redis. All functions that start anything but a standalone Redis call it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Testing() && testing.Short() { // benchmarks outside of tests have no such flag
		t.Skip("long: make test-long runs it")
	}
}

// missing ends the test: skipped on a laptop, failed in CI, where a skip would
// pass for a result.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed: run make deps", what)
	}
	t.Skipf("%s is not installed: run make deps", what)
}
