package suite

import (
	"syscall"
	"time"
)

// Sleep sleeps more precisely than time.Sleep, which may be a millisecond late in a mostly idle program.
func Sleep(d time.Duration) {
	if d > 0 {
		t := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&t, nil) // if a signal interrupts it, one request is sent early
	}
}
