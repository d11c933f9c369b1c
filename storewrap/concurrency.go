package storewrap

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxCalls is what a Redis that takes 10 µs for each can answer within the deadline.
	maxCalls   = 1_024
	minCalls   = 2
	firstCalls = 8
	// cutEvery is how often the limit shrinks at most: calls that were sent together are late together.
	cutEvery = 10 * time.Millisecond
)

// concurrencyLimit is how many calls to a shard may be under way. A call beyond it would come too late and be charged all the
// same, so it is not made. The limit shrinks when calls are late and grows with those that are answered, as TCP's window does:
// fast up to half of where it last was too large, from there by one for each round.
type concurrencyLimit struct {
	limit    atomic.Int64
	inFlight atomic.Int64
	good     atomic.Int64 // calls since it last grew
	took     atomic.Int64 // nanoseconds that a call takes, on average
	fastTo   atomic.Int64 // it grows fast up to here
	mu       sync.Mutex
	cutAt    time.Time
	queue    turns
}

func (l *concurrencyLimit) init() {
	l.limit.Store(maxCalls)
	l.fastTo.Store(maxCalls)
}

// shrink starts anew: a store that has just recovered may answer less than before.
func (l *concurrencyLimit) shrink() {
	l.limit.Store(firstCalls)
	l.fastTo.Store(maxCalls)
}

// enter reports whether there is room for a call, and none waits for it.
func (l *concurrencyLimit) enter(important bool) bool {
	return l.queue.waiting.Load() == 0 && l.tryEnter(important)
}

func (l *concurrencyLimit) tryEnter(important bool) bool {
	if l.inFlight.Add(1) > l.room(important) {
		l.inFlight.Add(-1)
		return false
	}
	return true
}

// room returns how many calls may be under way. A quarter of them is for important ones only.
func (l *concurrencyLimit) room(important bool) int64 {
	limit := l.limit.Load()
	if important {
		return limit
	}
	return limit - limit/4
}

// leave ends a call that was not made.
func (l *concurrencyLimit) leave() {
	l.inFlight.Add(-1)
	l.admit()
}

// ended ends a call, after as long as it took.
func (l *concurrencyLimit) ended(now time.Time, took time.Duration, good, late bool) {
	before := l.took.Load()
	l.took.Store(before + (int64(took)-before)/8) // of several at once some may not count
	inFlight := l.inFlight.Add(-1) + 1
	defer l.admit()
	limit := l.limit.Load()
	switch {
	case late:
		l.cut(now)
	case !good || limit >= maxCalls || 2*inFlight < limit:
	case limit < l.fastTo.Load(), l.good.Add(1) >= limit:
		l.good.Store(0)
		l.limit.CompareAndSwap(limit, limit+1)
	}
}

func (l *concurrencyLimit) cut(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.cutAt) < cutEvery {
		return
	}
	l.cutAt = now
	half := max(minCalls, l.limit.Load()/2)
	l.limit.Store(half)
	l.fastTo.Store(half)
}
