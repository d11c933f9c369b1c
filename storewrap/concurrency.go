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

// turns are the calls that wait until others have ended, first come, first served, the important ones before the others.
type turns struct {
	waiting atomic.Int64
	mu      sync.Mutex
	queues  [2][]*waiter // of important calls, and of the others
}

// waiter is one call.
type waiter struct {
	come chan struct{} // closed when it has entered
	over bool          // it has entered, or no longer waits
}

// push adds a call at the end.
func (t *turns) push(important bool) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := &waiter{come: make(chan struct{})}
	q := t.queue(important)
	*q = append(*q, own)
	t.waiting.Add(1)
	return own
}

// withdraw ends the wait of a call. It reports false if its turn has come just then.
func (t *turns) withdraw(own *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.over {
		return false
	}
	own.over = true
	t.waiting.Add(-1)
	return true
}

func (t *turns) queue(important bool) *[]*waiter {
	if important {
		return &t.queues[0]
	}
	return &t.queues[1]
}

// await waits until there is room for a call, and reports whether it was entered. It does not wait longer than a duration, and not at
// all if the store takes half of that for a call, or if those that wait already will take longer: most would wait in vain.
func (l *concurrencyLimit) await(important bool, atMost time.Duration) bool {
	took := l.took.Load()
	if 2*took > int64(atMost) || (l.queue.waiting.Load()+1)*took > l.room(important)*int64(atMost) {
		return false
	}
	own := l.queue.push(important)
	l.admit() // the last call may have ended before this one waited
	select {
	case <-own.come:
		return true
	case <-time.After(atMost):
		return !l.queue.withdraw(own)
	}
}

// admit lets calls enter for which there is room now.
func (l *concurrencyLimit) admit() {
	t := &l.queue
	if t.waiting.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, important := range [...]bool{true, false} {
		q := t.queue(important)
		for len(*q) > 0 && ((*q)[0].over || l.tryEnter(important)) {
			if first := (*q)[0]; !first.over {
				first.over = true
				close(first.come)
				t.waiting.Add(-1)
			}
			(*q)[0] = nil
			*q = (*q)[1:]
		}
	}
}
