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
	mu        sync.Mutex
	items     slotHeap
	scheduled int  // holders that are due at some time
	running   bool // there is a goroutine for it
	wake      chan struct{}
}

// slotItem is valid if at is still the time at which the holder is due.
type slotItem struct {
	at     time.Time
	holder *slotHolder
}

// slotHeap has the earliest item first.
type slotHeap []slotItem

func (s slotHeap) Len() int           { return len(s) }
func (s slotHeap) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s slotHeap) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// Push implements heap.Interface.
func (s *slotHeap) Push(x any) {
	item, _ := x.(slotItem)
	*s = append(*s, item)
}

// Pop implements heap.Interface.
func (s *slotHeap) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	(*s)[last] = slotItem{}
	*s = (*s)[:last]
	return item
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
	case h.finished():
		a.clear(h)
		h.counter.forget(h)
	case at.IsZero() || !h.due.IsZero() && !at.Before(h.due):
		return
	default:
		if h.due.IsZero() {
			a.scheduled++
		}
		h.due = at
		heap.Push(&a.items, slotItem{at, h})
	}
	switch {
	case !a.running && a.scheduled > 0:
		a.running = true
		go k.run()
	case a.scheduled == 0 || a.items[0].holder == h:
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// clear removes a holder from the agenda.
func (a *slotAgenda) clear(h *slotHolder) {
	if !h.due.IsZero() {
		h.due = time.Time{}
		a.scheduled--
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
		items, next, ok := a.take(time.Now())
		switch {
		case len(items) > 0:
			k.perform(items)
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

// take removes the items that are due. If there are none, it returns when the next one is; ok is false if there is none either, and
// the goroutine must end.
func (a *slotAgenda) take(now time.Time) (items []slotItem, next time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scheduled == 0 {
		a.items, a.running = a.items[:0], false
		return nil, next, false
	}
	for len(items) < maxSlotBatch*maxSlotCalls && !a.items[0].at.After(now) {
		item, _ := heap.Pop(&a.items).(slotItem)
		if items = append(items, item); len(a.items) == 0 {
			return items, next, true
		}
	}
	return items, a.items[0].at, true
}

// perform makes the operations that the holders need, several in one call.
func (k *slotKeeper) perform(items []slotItem) {
	var operations []*slotOperation
	for _, item := range items {
		h := item.holder
		stripe := h.counter.stripe
		stripe.mu.Lock()
		if h.due.Equal(item.at) {
			k.agenda.mu.Lock()
			k.agenda.clear(h)
			k.agenda.mu.Unlock()
			now := time.Now()
			if op := h.next(k, now); op != nil {
				operations = append(operations, op)
			} else {
				k.schedule(h, h.dueAt(now))
			}
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
		h.counter.stripe.mu.Unlock()
	}
}

// wait waits until nothing is to be done.
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
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
