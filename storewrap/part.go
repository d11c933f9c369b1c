package storewrap

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// enoughFailures within the longest span, which are also most of the calls, make a part go away.
	enoughFailures = 5
	slotLength     = 100 * time.Millisecond
	slots          = 100 // ten seconds of them
)

// spans are how far back failures are weighed against successes, in slots: a store that was well for a long time and has died
// should be noticed soon, one that nobody asks often at all.
var spans = [...]int64{2, 10, slots}

// part is one part of the store: its breaker, and how many calls it may have at a time.
type part struct {
	number int
	away   atomic.Bool
	ring   [slots]slot
	window

	mu       sync.Mutex
	since    time.Time
	forgiven int64 // the slot before which nothing counts any more
}

func newPart(number int) *part {
	p := &part{number: number}
	p.open()
	return p
}

// slot counts the calls of a tenth of a second, which is its number.
type slot struct {
	number       atomic.Int64
	good, failed atomic.Int64
}

// at is the slot of a time. Who finds the one of ten seconds ago empties it.
func (p *part) at(number int64) *slot {
	s := &p.ring[number%slots]
	if old := s.number.Load(); old != number && s.number.CompareAndSwap(old, number) {
		s.good.Store(0)
		s.failed.Store(0)
	}
	return s
}

// note counts a call. It is true if the part should be left alone.
func (p *part) note(now time.Time, good bool) bool {
	number := now.UnixNano() / int64(slotLength)
	s := p.at(number)
	if good {
		s.good.Add(1)
		return false
	}
	s.failed.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, span := range spans {
		var well, failed int64
		for n := max(number-span+1, p.forgiven); n <= number; n++ {
			if s := &p.ring[n%slots]; s.number.Load() == n {
				well += s.good.Load()
				failed += s.failed.Load()
			}
		}
		if failed >= enoughFailures && failed > well {
			return true
		}
	}
	return false
}

// goAway is false if the part is already.
func (p *part) goAway(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away.Load() {
		return false
	}
	p.since = now
	p.away.Store(true)
	return true
}

// back notes that the part answers, and says how long it was away. What was before is forgiven.
func (p *part) back(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgiven = now.UnixNano()/int64(slotLength) + 1
	p.shrink()
	p.away.Store(false)
	return now.Sub(p.since)
}

// jitter is a span around another, so that nodes do not ask all at once.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d) //nolint:gosec // it spreads nodes, and is no secret
}
