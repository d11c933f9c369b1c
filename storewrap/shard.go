package storewrap

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// enoughFailures within the longest span, which are also most of the calls, open the circuit.
	enoughFailures = 5
	slotLength     = 100 * time.Millisecond
	slots          = 100 // ten seconds of them
)

// spans are how far back failures are weighed against successes, in slots: the death of a store that was well for long is noticed
// soon, that of one that is rarely asked at all.
var spans = [...]int64{2, 10, slots}

// shard is a part of the store that fails on its own: its circuit breaker and its concurrency limit.
type shard struct {
	number int
	open   atomic.Bool // the circuit
	ring   [slots]slot
	calls  concurrencyLimit

	mu       sync.Mutex
	since    time.Time // the circuit is open
	forgiven int64     // slot before which failures no longer count
}

func newShard(number int) *shard {
	s := &shard{number: number}
	s.calls.init()
	return s
}

// slot counts the calls of a tenth of a second.
type slot struct {
	number       atomic.Int64
	good, failed atomic.Int64
}

// slotAt returns the slot of a time, emptied if it was that of ten seconds ago.
func (s *shard) slotAt(number int64) *slot {
	at := &s.ring[number%slots]
	if old := at.number.Load(); old != number && at.number.CompareAndSwap(old, number) {
		at.good.Store(0)
		at.failed.Store(0)
	}
	return at
}

// record counts a call, and reports whether the circuit should open.
func (s *shard) record(now time.Time, good bool) bool {
	number := now.UnixNano() / int64(slotLength)
	at := s.slotAt(number)
	if good {
		at.good.Add(1)
		return false
	}
	at.failed.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range spans {
		var well, failed int64
		for n := max(number-span+1, s.forgiven); n <= number; n++ {
			if at := &s.ring[n%slots]; at.number.Load() == n {
				well += at.good.Load()
				failed += at.failed.Load()
			}
		}
		if failed >= enoughFailures && failed > well {
			return true
		}
	}
	return false
}

// trip opens the circuit, and reports false if it is open already.
func (s *shard) trip(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.Load() {
		return false
	}
	s.since = now
	s.open.Store(true)
	return true
}

// reset closes the circuit and returns how long it was open. Earlier failures are forgiven.
func (s *shard) reset(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgiven = now.UnixNano()/int64(slotLength) + 1
	s.calls.shrink()
	s.open.Store(false)
	return now.Sub(s.since)
}

// jitter returns a duration around another, so that nodes do not act all at once.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d) //nolint:gosec // it spreads nodes, and is no secret
}
