package storewrap

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// overNetwork is a store that answers at once, over a connection of this process, unless it hangs.
type overNetwork struct {
	headgate.Store
	conn  net.Conn
	hangs atomic.Bool

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan struct{}
}

func newOverNetwork(t *testing.T) *overNetwork {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := &overNetwork{Store: memstore.New(memstore.Options{}), conn: conn, waiting: map[uint64]chan struct{}{}}
	var running sync.WaitGroup
	t.Cleanup(func() {
		_, _ = conn.Close(), server.Close()
		running.Wait()
	})
	running.Go(func() {
		each(server, func(number []byte) {
			if !s.hangs.Load() {
				_, _ = server.Write(number)
			}
		})
	})
	running.Go(func() {
		each(conn, func(number []byte) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if answered := s.waiting[binary.LittleEndian.Uint64(number)]; answered != nil {
				close(answered)
			}
		})
	})
	return s
}

// each calls f for each number that comes.
func each(from io.Reader, f func(number []byte)) {
	number := make([]byte, 8)
	for {
		if _, err := io.ReadFull(from, number); err != nil {
			return
		}
		f(number)
	}
}

func (s *overNetwork) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	answered := make(chan struct{})
	s.mu.Lock()
	s.last++
	number := s.last
	s.waiting[number] = answered
	_, err := s.conn.Write(binary.LittleEndian.AppendUint64(nil, number))
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, number)
		s.mu.Unlock()
	}()
	if err != nil {
		return failAll(results, headgate.ErrUnavailable)
	}
	select {
	case <-answered:
		return s.Store.Take(ctx, charges, results)
	case <-ctx.Done():
		return failAll(results, fmt.Errorf("%w: %w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered, ctx.Err()))
	}
}

// starve keeps all threads of this process busy until the test ends, with far more goroutines than there are threads.
func starve(t *testing.T) {
	t.Helper()
	var end atomic.Bool
	var running sync.WaitGroup
	for range 16 * runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for n := 0; !end.Load(); n++ {
				if n%10_000 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	t.Cleanup(func() {
		end.Store(true)
		running.Wait()
	})
}

// A process that is too busy to read the answers of a store in time does not take the store for failed. If the store hangs as well, it
// does, and no caller waits for long.
func TestStarvedProcess(t *testing.T) {
	inner := newOverNetwork(t)
	s := wrap(t, inner, Options{Deadline: DefaultDeadline})
	starve(t)
	var byStore, local atomic.Int64
	ask := func(calls int) {
		var running sync.WaitGroup
		for caller := range 64 {
			running.Go(func() {
				c := hour(headgate.FixedWindow, 1_000_000)
				c.Subject = headgate.SubjectOf("user", string(rune('a'+caller)))
				for range calls {
					r, err := take(s, c)
					if err != nil {
						t.Error(err)
					}
					if r[0].Path == headgate.PathLocal {
						local.Add(1)
					} else {
						byStore.Add(1)
					}
				}
			})
		}
		running.Wait()
	}
	ask(5)
	stats := s.Stats()
	t.Logf("%d decided by the store, %d by the local share; %+v", byStore.Load(), local.Load(), stats)
	if stats.CircuitOpened != 0 {
		t.Errorf("the circuit opened %d times", stats.CircuitOpened)
	}
	inner.hangs.Store(true)
	eventually(t, "unavailable", func() bool { ask(1); return s.Stats().ShardsUnavailable == 1 })
	inner.hangs.Store(false)
}
