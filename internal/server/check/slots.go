package check

import (
	"container/heap"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// maxSlots is the maximum number of requests with slots on a server. Each takes about 350 bytes.
const maxSlots = 1_000_000

var (
	// ErrTooManySlots means that a request was not decided because too many others have slots.
	ErrTooManySlots = fmt.Errorf("%d requests in flight have slots on this server: release those that have ended", maxSlots)
	errSlotsClosed  = fmt.Errorf("%w: the server is stopping", headgate.ErrUnavailable)
)

// Slots keeps the decisions on requests that have units of concurrency limits, until the caller releases them, by a token that only
// the caller knows. Units that are not renewed in time are released. Units of a stream are in a table of their own: they are not
// renewed, and are released with the stream.
type Slots struct {
	free   *Budget // shared with the tables of streams
	leased bool

	mu     sync.Mutex
	open   map[slotToken]*slot
	closed bool
	due    slotHeap
	timer  *time.Timer
	armed  time.Time // when the timer fires; zero if it is not set
}

// slotToken is random, so that a caller cannot release what others have.
type slotToken [16]byte

// slot is what one request has.
type slot struct {
	token    slotToken
	decision headgate.Decision // without its limits, which take more memory
	lease    time.Duration
	expires  time.Time
	index    int // in the heap
}

// Held is what a request has acquired. It is empty if that is nothing.
type Held struct {
	Token []byte
	Lease time.Duration
}

// NewSlots returns an empty table.
func NewSlots() *Slots { return newSlots(maxSlots) }

func newSlots(limit int64) *Slots {
	s := &Slots{free: &Budget{}, leased: true, open: map[slotToken]*slot{}}
	s.free.Return(limit)
	return s
}

// OfStream returns a table for a stream. Close it when the stream ends.
func (s *Slots) OfStream() *Slots { return &Slots{free: s.free, open: map[slotToken]*slot{}} }

// Begin decides a request by begin, the method of an engine, and keeps what it has acquired. If ctx is done, the caller will not get
// the token, and nothing is kept.
func (s *Slots) Begin(
	ctx context.Context, req headgate.Request, begin func(context.Context, headgate.Request) (headgate.Decision, error),
) (d headgate.Decision, held Held, err error) {
	if s.free.Take(1) == 0 {
		return d, held, ErrTooManySlots
	}
	d, err = begin(ctx, req)
	if d.Holds() && err == nil && ctx.Err() == nil {
		if held, err = s.add(&d); err == nil {
			return d, held, nil
		}
	}
	s.free.Return(1)
	d.Done(headgate.Outcome{Cancelled: true}) //nolint:contextcheck // releases do not belong to a request
	return d, held, err
}

// add keeps a decision.
func (s *Slots) add(d *headgate.Decision) (Held, error) {
	kept := &slot{decision: *d, lease: leaseOf(d)}
	kept.decision.Limits, kept.decision.Exempt = nil, nil
	_, _ = rand.Read(kept.token[:]) // never fails
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Held{}, errSlotsClosed
	}
	s.open[kept.token] = kept
	if s.leased {
		kept.expires = time.Now().Add(kept.lease)
		heap.Push(&s.due, kept)
		s.arm()
	}
	return Held{kept.token[:], kept.lease}, nil
}

// leaseOf returns the shortest lease of the concurrency limits of a request.
func leaseOf(d *headgate.Decision) (lease time.Duration) {
	for i := range d.Limits {
		if l := &d.Limits[i].Limit; l.Algorithm == headgate.Concurrency && (lease == 0 || l.Window < lease) {
			lease = l.Window
		}
	}
	return lease
}

// Release releases what a request has. It reports whether the table had it.
func (s *Slots) Release(token []byte, o headgate.Outcome) bool {
	s.mu.Lock()
	kept := s.find(token)
	if kept != nil {
		s.remove(kept)
	}
	s.mu.Unlock()
	if kept == nil {
		return false
	}
	s.end(kept, o)
	return true
}

// Renew keeps what a request has for another lease. It reports whether the table has it.
func (s *Slots) Renew(token []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.find(token)
	if kept == nil || !s.leased {
		return false
	}
	kept.expires = time.Now().Add(kept.lease)
	heap.Fix(&s.due, kept.index)
	return true
}

// find returns what a request has, or nil.
func (s *Slots) find(token []byte) *slot {
	if len(token) != len(slotToken{}) {
		return nil
	}
	return s.open[slotToken(token)]
}

// remove removes a slot from the table.
func (s *Slots) remove(kept *slot) *slot {
	delete(s.open, kept.token)
	if s.leased {
		heap.Remove(&s.due, kept.index)
	}
	return kept
}

// end releases a slot that is no longer in the table.
func (s *Slots) end(kept *slot, o headgate.Outcome) {
	kept.decision.Done(o)
	s.free.Return(1)
}

// Close releases everything, and makes Begin fail.
func (s *Slots) Close() {
	s.mu.Lock()
	open := s.open
	s.open, s.due, s.closed = nil, nil, true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	for _, kept := range open {
		s.end(kept, headgate.Outcome{Cancelled: true})
	}
}

// arm sets the timer to the first expiry, unless it fires earlier: it is not reset for each release.
func (s *Slots) arm() {
	first := s.due[0].expires
	switch {
	case s.timer == nil:
		s.timer = time.AfterFunc(time.Until(first), s.expire)
	case s.armed.IsZero() || first.Before(s.armed):
		s.timer.Reset(time.Until(first))
	default:
		return
	}
	s.armed = first
}

// expire releases what was not renewed in time.
func (s *Slots) expire() {
	var expired []*slot
	now := time.Now()
	s.mu.Lock()
	for len(s.due) > 0 && !s.due[0].expires.After(now) {
		expired = append(expired, s.remove(s.due[0]))
	}
	s.armed = time.Time{}
	if len(s.due) > 0 {
		s.arm()
	}
	s.mu.Unlock()
	for _, kept := range expired {
		s.end(kept, headgate.Outcome{Cancelled: true})
	}
}

// slotHeap has the slot that expires first at its beginning.
type slotHeap []*slot

func (h slotHeap) Len() int           { return len(h) }
func (h slotHeap) Less(i, j int) bool { return h[i].expires.Before(h[j].expires) }

// Swap implements heap.Interface.
func (h slotHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *slotHeap) Push(x any) {
	kept, _ := x.(*slot)
	kept.index = len(*h)
	*h = append(*h, kept)
}

// Pop implements heap.Interface.
func (h *slotHeap) Pop() any {
	last := len(*h) - 1
	kept := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return kept
}
