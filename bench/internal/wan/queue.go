package wan

import (
	"container/heap"
	"sync"
	"time"
)

// queue has the packets on their way.
type queue struct {
	mu      sync.Mutex
	packets packets
	number  uint64
	wake    chan struct{} // a packet is due earlier than all others
	closed  chan struct{}
}

type packet struct {
	at     time.Time
	number uint64 // keeps the order of packets that are due at the same time
	to     int
	data   []byte
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1), closed: make(chan struct{})} }

// add adds a packet that arrives in a region at a time.
func (q *queue) add(at time.Time, to int, data []byte) {
	q.mu.Lock()
	q.number++
	p := &packet{at, q.number, to, data}
	heap.Push(&q.packets, p)
	first := q.packets[0] == p
	q.mu.Unlock()
	if first {
		select {
		case q.wake <- struct{}{}:
		default: // run has not yet looked since the last call
		}
	}
}

// run delivers packets when they are due, until the queue is closed.
func (q *queue) run(deliver func(to int, data []byte)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-q.closed:
			return
		case <-q.wake:
		case <-timer.C:
		}
		for p := q.due(); p != nil; p = q.due() {
			deliver(p.to, p.data)
		}
		if at, ok := q.next(); ok {
			timer.Reset(time.Until(at))
		}
	}
}

// due removes the next packet and returns it, or nil if it is not due yet.
func (q *queue) due() *packet {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.packets) == 0 || time.Now().Before(q.packets[0].at) {
		return nil
	}
	p, _ := heap.Pop(&q.packets).(*packet)
	return p
}

func (q *queue) next() (at time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.packets) == 0 {
		return at, false
	}
	return q.packets[0].at, true
}

func (q *queue) close() { close(q.closed) }

// packets is a heap, with the packet that is due next at its root.
type packets []*packet

func (p packets) Len() int { return len(p) }

func (p packets) Less(i, j int) bool {
	if p[i].at.Equal(p[j].at) {
		return p[i].number < p[j].number
	}
	return p[i].at.Before(p[j].at)
}

func (p packets) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

// Push appends x, for package heap.
func (p *packets) Push(x any) { *p = append(*p, x.(*packet)) } //nolint:errcheck,forcetypeassert // only add calls it

// Pop removes the last packet, for package heap.
func (p *packets) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	(*p)[last] = nil
	*p = (*p)[:last]
	return x
}
