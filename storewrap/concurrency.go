package storewrap

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxCalls is how many calls a Redis that needs 10 µs for each can answer within the default deadline.
	maxCalls     = 1_024
	minCalls     = 2
	initialCalls = 8
	// shrinkInterval is the minimum time between two reductions: calls that were sent together are late together.
	shrinkInterval = 10 * time.Millisecond
)

// concurrencyLimit limits how many calls to a shard may be in flight. A call above the limit would be answered too late and
// still be charged, so it is not made. The limit adapts like TCP's congestion window: it is halved when calls are late, and
// grows as calls succeed, fast up to half of where it last was too large, from there by one per round.
type concurrencyLimit struct {
	limit          atomic.Int64
	inFlight       atomic.Int64
	successes      atomic.Int64 // since the limit last grew
	avgLatency     atomic.Int64 // nanoseconds per call, moving average
	slowStartLimit atomic.Int64 // the limit grows fast up to this value
	mu             sync.Mutex
	shrunkAt       time.Time
	queue          callQueue
}

// init starts with the largest limit.
func (l *concurrencyLimit) init() {
	l.limit.Store(maxCalls)
	l.slowStartLimit.Store(maxCalls)
}

// restart starts again with a small limit: a store that has just recovered may be slower than before.
func (l *concurrencyLimit) restart() {
	l.limit.Store(initialCalls)
	l.slowStartLimit.Store(maxCalls)
}

// enter reports whether a call may start at once: the limit allows it, and no call waits.
func (l *concurrencyLimit) enter(critical bool) bool {
	return l.queue.waiting.Load() == 0 && l.tryEnter(critical)
}

// tryEnter reports whether the limit allows one more call, and counts it if so.
func (l *concurrencyLimit) tryEnter(critical bool) bool {
	if l.inFlight.Add(1) > l.capacity(critical) {
		l.inFlight.Add(-1)
		return false
	}
	return true
}

// capacity returns how many calls may be in flight. A quarter is reserved for critical calls.
func (l *concurrencyLimit) capacity(critical bool) int64 {
	limit := l.limit.Load()
	if critical {
		return limit
	}
	return limit - limit/4
}

// leave frees the slot of a call that was not made.
func (l *concurrencyLimit) leave() {
	l.inFlight.Add(-1)
	l.admit()
}

// finish frees the slot of a call that was made, and adapts the limit to its outcome.
func (l *concurrencyLimit) finish(now time.Time, elapsed time.Duration, ok, late bool) {
	before := l.avgLatency.Load()
	l.avgLatency.Store(before + (int64(elapsed)-before)/8) // concurrent updates may be lost
	inFlight := l.inFlight.Add(-1) + 1
	defer l.admit()
	limit := l.limit.Load()
	switch {
	case late:
		l.shrink(now)
	case !ok || limit >= maxCalls || 2*inFlight < limit:
	case limit < l.slowStartLimit.Load(), l.successes.Add(1) >= limit:
		l.successes.Store(0)
		l.limit.CompareAndSwap(limit, limit+1)
	}
}

// shrink halves the limit, at most once per shrinkInterval.
func (l *concurrencyLimit) shrink(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.shrunkAt) < shrinkInterval {
		return
	}
	l.shrunkAt = now
	half := max(minCalls, l.limit.Load()/2)
	l.limit.Store(half)
	l.slowStartLimit.Store(half)
}

// callQueue holds the calls that wait for others to finish: first come, first served, critical ones before the others.
type callQueue struct {
	waiting atomic.Int64
	mu      sync.Mutex
	queues  [2][]*waiter // of critical calls, and of the others
}

// waiter is one waiting call.
type waiter struct {
	entered chan struct{} // closed when the call may start
	done    bool          // the call has entered, or no longer waits
}

// push adds a call at the end.
func (t *callQueue) push(critical bool) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &waiter{entered: make(chan struct{})}
	q := t.queue(critical)
	*q = append(*q, w)
	t.waiting.Add(1)
	return w
}

// withdraw removes a call from the queue. It returns false if the call has entered in the meantime.
func (t *callQueue) withdraw(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.done {
		return false
	}
	w.done = true
	t.waiting.Add(-1)
	return true
}

// queue returns the queue of critical calls or that of the others.
func (t *callQueue) queue(critical bool) *[]*waiter {
	if critical {
		return &t.queues[0]
	}
	return &t.queues[1]
}

// await waits until the limit allows a call, up to maxWait, and reports whether it does. It returns false at once if a call
// takes longer than half of maxWait on average, or if the calls that already wait will take longer than maxWait: most calls
// would wait without success.
func (l *concurrencyLimit) await(critical bool, maxWait time.Duration) bool {
	latency := l.avgLatency.Load()
	if 2*latency > int64(maxWait) || (l.queue.waiting.Load()+1)*latency > l.capacity(critical)*int64(maxWait) {
		return false
	}
	w := l.queue.push(critical)
	l.admit() // the last call may have finished before this one was queued
	select {
	case <-w.entered:
		return true
	case <-time.After(maxWait):
		return !l.queue.withdraw(w)
	}
}

// admit lets waiting calls enter as far as the limit allows.
func (l *concurrencyLimit) admit() {
	t := &l.queue
	if t.waiting.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, critical := range [...]bool{true, false} {
		q := t.queue(critical)
		for len(*q) > 0 && ((*q)[0].done || l.tryEnter(critical)) {
			if first := (*q)[0]; !first.done {
				first.done = true
				close(first.entered)
				t.waiting.Add(-1)
			}
			(*q)[0] = nil
			*q = (*q)[1:]
		}
	}
}
