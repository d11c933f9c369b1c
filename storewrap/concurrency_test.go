package storewrap

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// The limit is halved when calls are late, once for calls that were sent together, and grows again: fast at first.
func TestConcurrencyLimitAdapts(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	var w concurrencyLimit
	w.init()
	enter := func(n int, critical bool) (entered int) {
		for range n {
			if w.enter(critical) {
				entered++
			}
		}
		return entered
	}
	if n := enter(2_000, false); n != maxCalls*3/4 {
		t.Errorf("%d entered of %d", n, maxCalls)
	}
	if n := enter(2_000, true); n != maxCalls/4 {
		t.Errorf("%d more critical calls entered", n)
	}
	for range maxCalls {
		w.finish(now, time.Millisecond, false, true)
	}
	if got := w.limit.Load(); got != maxCalls/2 || w.inFlight.Load() != 0 {
		t.Errorf("the limit is %d, and %d calls are in flight", got, w.inFlight.Load())
	}
	for range 20 {
		now = now.Add(shrinkInterval)
		enter(1, true)
		w.finish(now, time.Millisecond, false, true)
	}
	if got := w.limit.Load(); got != minCalls {
		t.Errorf("the limit is %d", got)
	}
	rounds := func(n int) {
		for range n {
			for range enter(2*maxCalls, true) {
				w.finish(now, time.Millisecond, true, false)
			}
		}
	}
	if rounds(10); w.limit.Load() < minCalls+5 || w.limit.Load() > minCalls+10 {
		t.Errorf("it has grown to %d in ten rounds", w.limit.Load())
	}
	w.restart()
	if rounds(20); w.limit.Load() != maxCalls {
		t.Errorf("it has grown to %d in twenty rounds from the start", w.limit.Load())
	}
}

// Calls over the limit wait for their turn, critical ones first, unless the calls before them take too long. A call that
// times out leaves nothing behind.
func TestCallsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l concurrencyLimit
		l.init()
		l.limit.Store(4)
		for l.enter(true) {
		}
		var order []bool
		var mu sync.Mutex
		var running sync.WaitGroup
		for _, critical := range []bool{false, true, false} {
			running.Go(func() {
				if l.await(critical, time.Second) {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, critical)
				}
			})
			synctest.Wait()
		}
		if l.enter(true) || l.queue.waiting.Load() != 3 {
			t.Errorf("%d wait", l.queue.waiting.Load())
		}
		for range 3 {
			l.finish(time.Now(), time.Millisecond, true, false)
			synctest.Wait()
		}
		running.Wait()
		if !slices.Equal(order, []bool{true, false, false}) || l.queue.waiting.Load() != 0 {
			t.Errorf("the order was %v, and %d wait", order, l.queue.waiting.Load())
		}
		for l.enter(true) {
		}
		before := l.inFlight.Load()
		if l.await(false, time.Millisecond) || l.queue.waiting.Load() != 0 || l.inFlight.Load() != before {
			t.Error("it entered")
		}
		l.avgLatency.Store(int64(time.Hour))
		began := time.Now()
		if l.await(true, time.Second) || time.Since(began) > 0 {
			t.Error("it waited although the store is too slow")
		}
	})
}

// slow answers one call after the other, in order of arrival, even those that no caller waits for any more.
type slow struct {
	headgate.Store
	turn  chan struct{}
	takes time.Duration
}

func (s *slow) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	served := make(chan error, 1)
	innerResults := make([]headgate.Result, len(results))
	go func() {
		s.turn <- struct{}{}
		time.Sleep(s.takes)
		err := s.Store.Take(context.WithoutCancel(ctx), charges, innerResults)
		<-s.turn
		served <- err
	}()
	select {
	case err := <-served:
		copy(results, innerResults)
		return err
	case <-ctx.Done():
		return failAll(results, errLost)
	}
}

// Far more requests arrive than the store can answer. No request waits too long, the store gets only as many calls as it can
// answer, and the limit's units are granted, with a few more until the store has counted them.
func TestStoreOverload(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	const (
		limit   = 1_000
		callers = 40
		lasts   = 2 * time.Second
	)
	inner := &slow{Store: memstore.New(memstore.Options{}), turn: make(chan struct{}, 1), takes: 2 * time.Millisecond}
	s := wrap(t, inner, Options{Deadline: 30 * time.Millisecond})
	c := hour(headgate.FixedWindow, limit)
	var requests, admitted, tooLong atomic.Int64
	var running sync.WaitGroup
	end := time.Now().Add(lasts)
	for range callers {
		running.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				r, err := take(s, c)
				if err != nil {
					t.Error(err)
					return
				}
				if time.Since(began) > time.Second {
					tooLong.Add(1)
				}
				requests.Add(1)
				admitted.Add(r[0].Granted)
				time.Sleep(time.Millisecond)
			}
		})
	}
	running.Wait()
	eventually(t, "settled", func() bool { return s.Stats().PendingCounters == 0 })
	stats := s.Stats()
	t.Logf("%d requests, %d admitted, %+v, limit %d", requests.Load(), admitted.Load(), stats, s.transport.shardOf(c.Subject).calls.limit.Load())
	if got := admitted.Load(); got < limit*9/10 || got > limit*3/2 {
		t.Errorf("%d admitted of %d", got, limit)
	}
	if requests.Load() < 10*int64(lasts/inner.takes) {
		t.Logf("only %d requests: this machine is too busy to overload the store", requests.Load())
		return
	}
	if tooLong.Load() > 0 {
		t.Errorf("%d waited too long", tooLong.Load())
	}
	if stats.Rejected == 0 || stats.Unanswered > requests.Load()/10 {
		t.Errorf("of %d: %+v", requests.Load(), stats)
	}
}
