package storewrap

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// The circuit opens after minFailures failed calls in one of the spans, if they outnumber the successful ones.
	minFailures = 5
	slotLength  = 100 * time.Millisecond
	slots       = 100 // ten seconds
)

// spans are the periods, in slots, over which failures are compared with successes. The short ones detect the failure of a
// busy store quickly, the long one that of a store that is rarely called.
var spans = [...]int64{2, 10, slots}

// shard is a part of the store that fails independently: its circuit breaker and its concurrency limit.
type shard struct {
	number int
	open   atomic.Bool // the circuit is open
	ring   [slots]slot
	calls  concurrencyLimit

	mu           sync.Mutex
	since        time.Time // when the circuit opened
	ignoreBefore int64     // number of the first slot that counts
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

// slotAt returns the slot of a number, cleared if it was last used ten seconds ago.
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
		for n := max(number-span+1, s.ignoreBefore); n <= number; n++ {
			if at := &s.ring[n%slots]; at.number.Load() == n {
				well += at.good.Load()
				failed += at.failed.Load()
			}
		}
		if failed >= minFailures && failed > well {
			return true
		}
	}
	return false
}

// trip opens the circuit. It returns false if the circuit is open already.
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

// reset closes the circuit and returns how long it was open. Earlier failures no longer count.
func (s *shard) reset(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ignoreBefore = now.UnixNano()/int64(slotLength) + 1
	s.calls.restart()
	s.open.Store(false)
	return now.Sub(s.since)
}

// jitter returns a random duration from half of d to one and a half, so that nodes do not act all at once.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d) //nolint:gosec // it spreads nodes, and is not a secret
}
