package redisstore

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/redis/rueidis"
)

// TestNotSent checks that only calls that certainly were not sent count as such.
func TestNotSent(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}: true,
		rueidis.ErrNoSlot: true,

		&net.OpError{Op: "write", Err: syscall.EPIPE}:     false,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}: false,
		// The client also returns it for calls in flight when it drops a server.
		rueidis.ErrClosing:       false,
		io.EOF:                   false,
		context.DeadlineExceeded: false,
	} {
		if got := notSent(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: notSent returns %v", err, got)
		}
	}
}
