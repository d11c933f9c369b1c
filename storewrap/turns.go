package storewrap

import (
	"sync"
	"sync/atomic"
	"time"
)

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
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-own.come:
		return true
	case <-timer.C:
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
