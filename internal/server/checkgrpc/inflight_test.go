package checkgrpc

import (
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/server/check"
)

// from returns the share of a call on a new connection.
func from(t *testing.T, address string) (s share, c *connections, leave func()) {
	t.Helper()
	c = newConnections(100)
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s, leave = c.join(peer.NewContext(t.Context(), &peer.Peer{Addr: addr}))
	return s, c, leave
}

// TestWindows checks that every stream gets its reserved share, that all together stay within the budget, and that everything
// is returned.
func TestWindows(t *testing.T) {
	t.Parallel()
	own, c, leave := from(t, "192.0.2.1:1")
	windows := make([]*window, 20)
	for i := range windows {
		windows[i] = newWindow(100, own.checks)
	}
	var wg sync.WaitGroup
	for _, w := range windows {
		wg.Go(func() {
			used := 0
			for range 10_000 {
				if rand.IntN(2) == 0 {
					n := rand.IntN(200) + 1
					entered := int(w.tryEnter(int64(n)))
					if used += entered; entered < n && used < reserved || used > 100 {
						t.Errorf("%d of %d entered, which makes %d", entered, n, used)
					}
				} else if used > 0 {
					n := rand.IntN(used) + 1
					w.leave(n)
					used -= n
				}
			}
			w.close()
			w.leave(used)
		})
	}
	wg.Wait()
	leave()
	if n := left(&c.checks); n != serverFactor*100 || len(c.open) != 0 {
		t.Errorf("%d left, and %d connections", n, len(c.open))
	}
}

// TestConnectionShare checks that one connection cannot use up the budget of all.
func TestConnectionShare(t *testing.T) {
	t.Parallel()
	own, c, leave := from(t, "192.0.2.1:1")
	defer leave()
	if taken := own.checks.take(1 << 40); taken != 100 {
		t.Errorf("%d checks", taken)
	}
	for range connectionBytes >> 20 {
		if _, err := own.hold(1 << 20); err != nil {
			t.Fatal(err)
		}
	}
	_, err := own.hold(1 << 20)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "send at most 65536 bytes") {
		t.Errorf("over its bytes: %v", err)
	}
	if _, err := own.hold(smallMessage); err != nil {
		t.Errorf("a small message: %v", err)
	}
	if n := left(&c.bytes); n != serverBytes-connectionBytes {
		t.Errorf("%d bytes left", n)
	}
}

// TestWaitingShare checks that messages that wait for their stream have a separate budget, except small ones.
func TestWaitingShare(t *testing.T) {
	t.Parallel()
	own, c, leave := from(t, "192.0.2.1:1")
	defer leave()
	var releases []func()
	for range waitingConnectionBytes / smallMessage {
		release, err := own.holdWaiting(smallMessage)
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	_, err := own.holdWaiting(waitingMessage + 1)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "send at most 4096 bytes") {
		t.Errorf("over its bytes: %v", err)
	}
	if _, err := own.holdWaiting(waitingMessage); err != nil {
		t.Errorf("a small message: %v", err)
	}
	if _, err := own.holdWaiting(smallMessage + 1); err != nil {
		t.Errorf("a message already charged as large: %v", err)
	}
	for _, release := range releases {
		release()
	}
	if n := left(&c.waiting); n != waitingServerBytes {
		t.Errorf("%d bytes left", n)
	}
}

// left returns the available amount of a budget.
func left(b *check.Budget) int64 {
	n := b.Take(math.MaxInt64)
	b.Return(n)
	return n
}
