package headgate

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

// slotAgenda is when the keeper has to look at its holders.
type slotAgenda struct {
	mu      sync.Mutex
	items   slotHeap
	running bool // there is a goroutine for it
	stopped bool // nothing is to be done any more
	wake    chan struct{}
}

// slotHeap has the holder that is due first at its beginning. Each knows its index.
type slotHeap []*slotHolder

func (s slotHeap) Len() int           { return len(s) }
func (s slotHeap) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

// Swap implements heap.Interface.
func (s slotHeap) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push implements heap.Interface.
func (s *slotHeap) Push(x any) {
	h, _ := x.(*slotHolder)
	h.index = len(*s)
	*s = append(*s, h)
}

// Pop implements heap.Interface.
func (s *slotHeap) Pop() any {
	last := len(*s) - 1
	h := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return h
}

const (
	// maxSlotBatch is how many operations share a call to the store, and maxSlotCalls how many calls are made at a time.
	maxSlotBatch = 32
	maxSlotCalls = 8
)

// schedule has the keeper look at a holder at a time, or earlier. The zero time schedules nothing. A holder that has nothing left is
// forgotten.
func (k *slotKeeper) schedule(h *slotHolder, at time.Time) {
	a := &k.agenda
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.stopped:
		return
	case h.finished():
		a.clear(h)
		h.counter.forget(h)
	case at.IsZero() || !h.due.IsZero() && !at.Before(h.due):
		return
	case h.due.IsZero():
		h.due = at
		heap.Push(&a.items, h)
	default:
		h.due = at
		heap.Fix(&a.items, h.index)
	}
	switch {
	case !a.running && len(a.items) > 0:
		a.running = true
		go k.run()
	case len(a.items) == 0 || a.items[0] == h:
		a.wakeUp()
	}
}

// wakeUp has the goroutine look at the agenda.
func (a *slotAgenda) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// clear removes a holder from the agenda.
func (a *slotAgenda) clear(h *slotHolder) {
	if !h.due.IsZero() {
		heap.Remove(&a.items, h.index)
		h.due = time.Time{}
	}
}

// forget removes a holder, and with the last one the counter.
func (c *slotCounter) forget(h *slotHolder) {
	if h.closed() {
		c.closed = slices.DeleteFunc(c.closed, func(other *slotHolder) bool { return other == h })
	}
	if len(c.closed) == 0 && (c.current == nil || c.current.finished()) && c.stripe.counters[c.key] == c {
		delete(c.stripe.counters, c.key)
	}
}

// run looks at holders when they are due, until none is scheduled.
func (k *slotKeeper) run() {
	a := &k.agenda
	for {
		due, next, ok := a.take(time.Now())
		switch {
		case len(due) > 0:
			k.perform(due)
		case !ok:
			return
		default:
			timer := time.NewTimer(time.Until(next))
			select {
			case <-timer.C:
			case <-a.wake:
			}
			timer.Stop()
		}
	}
}

// take removes the holders that are due. If there are none, it returns when the next one is; ok is false if there is none either, and
// the goroutine must end.
func (a *slotAgenda) take(now time.Time) (due []*slotHolder, next time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.items) > 0 && !a.stopped && len(due) < maxSlotBatch*maxSlotCalls && !a.items[0].due.After(now) {
		due = append(due, a.items[0])
		a.clear(a.items[0])
	}
	switch {
	case len(a.items) > 0 && !a.stopped:
		next = a.items[0].due
	case len(due) == 0:
		a.running = false
		return nil, next, false
	}
	return due, next, true
}

// perform makes the operations that the holders need, several in one call.
func (k *slotKeeper) perform(due []*slotHolder) {
	var operations []*slotOperation
	for _, h := range due {
		stripe := h.counter.stripe
		stripe.mu.Lock()
		now := time.Now()
		if op := h.next(k, now); op != nil {
			operations = append(operations, op)
		} else {
			k.schedule(h, h.dueAt(now))
		}
		stripe.mu.Unlock()
	}
	var calls sync.WaitGroup
	for batch := range slices.Chunk(operations, maxSlotBatch) {
		calls.Go(func() { k.send(batch) })
	}
	calls.Wait()
}

// send makes operations in one call.
func (k *slotKeeper) send(operations []*slotOperation) {
	charges, results := make([]Charge, len(operations)), make([]Result, len(operations))
	for i, op := range operations {
		charges[i] = op.charge
	}
	_ = k.store.Take(context.Background(), charges, results) // each result has its own error
	now := time.Now()
	for i, op := range operations {
		h := op.holder
		h.counter.stripe.mu.Lock()
		h.finish(op, &results[i], now)
		k.schedule(h, h.dueAt(now))
		if op.from != nil {
			k.schedule(op.from, op.from.dueAt(now))
		}
		h.counter.stripe.mu.Unlock()
	}
}

// wait waits until nothing is to be done. If ctx ends first, the rest is given up, so that the goroutine ends.
func (a *slotAgenda) wait(ctx context.Context) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		a.mu.Lock()
		running := a.running
		a.mu.Unlock()
		if !running {
			return nil
		}
		select {
		case <-ctx.Done():
			a.mu.Lock()
			a.stopped = true
			a.mu.Unlock()
			a.wakeUp()
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
