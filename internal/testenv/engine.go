// Package testenv starts and stops real servers for tests, on free ports of
// 127.0.0.1, and can kill, pause, fail over and reshard them.
//
// It knows processes, ports and the few commands that set up and change a standalone server, a master set under Sentinel and a
// Cluster. It does not know keys or scripts, and its small client is for the setup of tests, not for the code under test.
//
// Servers need Redis 7.0 or Valkey 8.0 and keep nothing on disk between tests. Functions that take a testing.TB may end the test, so
// call them only from the test's own goroutine. The other functions may be called from any goroutine.
package testenv

import (
	"os"
	"testing"
)

// Engine is a server implementation: which binaries to run.
type Engine struct {
	name  string
	place *Place // of its servers; nil is this machine's own network
}

// The engines that tests run against.
var (
	Redis  = Engine{name: "redis"}
	Valkey = Engine{name: "valkey"}
)

func (e Engine) String() string { return e.name }

// In returns the engine with its servers in another place, on the loopback address there.
func (e Engine) In(p *Place) Engine {
	e.place = p
	return e
}

// binary returns the path of the server. Sentinel is the same program with another flag.
func (e Engine) binary(t testing.TB) string {
	t.Helper()
	if e.name != Redis.name {
		Long(t)
	}
	return Find(t, e.name+"-server")
}

// Long skips a test if tests run with -short, as in "make test". Call it in a test that takes more than about two seconds or needs
// more than one Redis. All functions that start anything but a standalone Redis call it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Testing() && testing.Short() { // programs outside of go test have no such flag
		t.Skip("long: make test-long runs it")
	}
}

// missing ends the test because a program is missing: it skips the test on a laptop and fails it in CI, where a skip would look like
// success.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed: run make deps", what)
	}
	t.Skipf("%s is not installed: run make deps", what)
}
