package testenv

import (
	"testing"
	"time"
)

// patience is how long a state may take to come about. Failovers take a few
// seconds; the rest is for a busy machine, where a sentinel that was held up for
// two seconds then trusts nothing for thirty.
const patience = time.Minute

// wait polls until check finds nothing missing, and ends the test with what
// still was when patience runs out.
func wait(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
