package testenv

import (
	"testing"
	"time"
)

// timeout is the maximum time to wait for a state. Failovers take a few seconds; the rest is for a busy machine, on which a sentinel
// that was delayed by two seconds enters TILT mode for thirty.
const timeout = time.Minute

// wait polls until check returns nil. After the timeout it ends the test with the last error.
func wait(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, timeout, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
