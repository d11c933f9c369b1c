package storewrap

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mostCalls is what a Redis that takes 10 µs for each can answer within the deadline.
	mostCalls  = 1_024
	fewCalls   = 2
	firstCalls = 8
	// cutEvery is how often the window shrinks at the most: calls that were sent together are late together.
	cutEvery = 10 * time.Millisecond
)

// window is how many calls may be under way at a time. What is asked beyond that would come too late, and be charged all the
// same; it is better not asked. The window shrinks when calls are late and grows with those that are answered, as TCP's does:
// fast up to half of where it last was too large, from there by one for each round.
type window struct {
	size   atomic.Int64
	under  atomic.Int64 // way
	good   atomic.Int64 // calls since it last grew
	grow   atomic.Int64 // fast up to here
	mu     sync.Mutex
	lately time.Time // it was cut
}

func (w *window) open() {
	w.size.Store(mostCalls)
	w.grow.Store(mostCalls)
}

// shrink makes it small, since nobody knows how much a store that is just back can answer.
func (w *window) shrink() {
	w.size.Store(firstCalls)
	w.grow.Store(mostCalls)
}

// enter is true if there is room for a call. A quarter of the window is for important ones only.
func (w *window) enter(important bool) bool {
	room := w.size.Load()
	if !important {
		room -= room / 4
	}
	if w.under.Add(1) > room {
		w.under.Add(-1)
		return false
	}
	return true
}

// leave ends a call that was not made.
func (w *window) leave() { w.under.Add(-1) }

// ended ends a call.
func (w *window) ended(now time.Time, good, late bool) {
	under := w.under.Add(-1) + 1
	size := w.size.Load()
	switch {
	case late:
		w.cut(now)
	case !good || size >= mostCalls || 2*under < size:
	case size < w.grow.Load(), w.good.Add(1) >= size:
		w.good.Store(0)
		w.size.CompareAndSwap(size, size+1)
	}
}

func (w *window) cut(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.lately) < cutEvery {
		return
	}
	w.lately = now
	half := max(fewCalls, w.size.Load()/2)
	w.size.Store(half)
	w.grow.Store(half)
}
