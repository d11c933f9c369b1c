package suite

import (
	"syscall"
	"time"
)

// Sleep is more exact than time.Sleep, which may be a millisecond late in a program that has little to do.
func Sleep(d time.Duration) {
	if d > 0 {
		t := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&t, nil) // a signal may end it early, and then one request is early
	}
}
