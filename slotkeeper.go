package headgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// slotKeeper keeps account of the units of concurrency limits that requests on this node have in use, and makes the store agree. A
// request acquires units in its own call to the store. Everything else is done by one goroutine, which runs only while there is
// something to do: it releases units, renews leases and repairs what the store has wrong.
type slotKeeper struct {
	store   Store
	first   uint64 // the ID of the first holder of a counter; further ones have a number in the lowest HolderBits
	epochs  atomic.Uint64
	seq     atomic.Int64
	closing atomic.Bool
	stripes [16]slotStripe
	agenda  slotAgenda
	stats   sync.Map // *slotStats by rule ID
}

// slotStripe is a part of the counters, and the lock of everything that belongs to them.
type slotStripe struct {
	mu       sync.Mutex
	counters map[slotKey]*slotCounter
}

// slotKey identifies a counter.
type slotKey struct {
	subject Subject
	counter Counter
}

// slotCounter is what this node knows about one counter.
type slotCounter struct {
	key    slotKey
	stripe *slotStripe
	stats  *slotStats
	charge Charge // the last one, without its holder and cost
	// current acquires units. closed are earlier holders, which only give them back.
	current *slotHolder
	closed  []*slotHolder
	used    int64         // by all nodes, as the store reported last
	clock   time.Duration // how far the store's clock is ahead of this node's
	mean    time.Duration // how long units are in use, as a moving average; 0 if unknown
}

const (
	// keepFor is how long released units are kept at least, while the counter is below keepBelow percent of its limit. Those that were
	// not needed for that long are given back at the next turn, after twice the time.
	keepFor   = 50 * time.Millisecond
	keepBelow = 80
)

func newSlotKeeper(store Store) *slotKeeper {
	k := &slotKeeper{store: store}
	if s, ok := store.(SlotStore); ok {
		k.first = s.HolderID()
	}
	if k.first == 0 {
		k.first = rand.Uint64() << HolderBits //nolint:gosec // it distinguishes nodes, and is not a secret
	}
	k.agenda.wake = make(chan struct{}, 1)
	k.seq.Store(time.Now().UnixMicro()) // above the numbers of an earlier account of the same counter
	return k
}

// stripeOf returns the stripe of a subject's counters.
func (k *slotKeeper) stripeOf(s Subject) *slotStripe { return &k.stripes[int(s[0])%len(k.stripes)] }

// slotTicket is a charge that acquires units, from when the request is prepared until its result is known.
type slotTicket struct {
	charge    int // index
	holder    *slotHolder
	kept      int64 // units taken from those that were kept
	requested int64 // units to be acquired from the store
	since     slotSnapshot
}

// acquire prepares a charge on a concurrency limit: it takes units that were kept, and has the charge acquire the others.
func (k *slotKeeper) acquire(c *Charge, index int, rule string) slotTicket {
	stripe, now := k.stripeOf(c.Subject), time.Now()
	stripe.mu.Lock()
	defer stripe.mu.Unlock()
	counter := k.counter(stripe, c, rule)
	h := counter.current
	t := slotTicket{charge: index, holder: h, requested: c.Cost}
	// The store must have recorded what was kept: not if it was admitted without the store, or if the lease is about to expire. It decides
	// what can never fit.
	if !c.Strict && c.Cost <= c.Limit.Count && !h.unsure() && now.Before(h.renewed.Add(counter.lease()*2/3)) {
		t.kept = min(h.kept, c.Cost)
		t.requested -= t.kept
	}
	c.InUse = counter.inUse() + t.kept
	h.kept, h.spending = h.kept-t.kept, h.spending+t.kept
	h.leastKept = min(h.leastKept, h.kept)
	h.pending += c.Cost
	if t.requested > 0 {
		t.since = h.begin(now)
		h.acquiring += t.requested
		h.acquired += t.requested
		c.Cost, c.Holder, c.Seq = t.requested, h.id, k.seq.Add(1)
	}
	return t
}

// counter returns the account of a charge's counter, with a holder that may acquire units.
func (k *slotKeeper) counter(stripe *slotStripe, c *Charge, rule string) *slotCounter {
	key := slotKey{c.Subject, c.Counter}
	counter, id := stripe.counters[key], k.first
	if counter == nil {
		counter = &slotCounter{key: key, stripe: stripe, stats: k.statsOf(rule)}
		if stripe.counters == nil {
			stripe.counters = map[slotKey]*slotCounter{}
		}
		stripe.counters[key] = counter
	} else if counter.current == nil {
		id |= k.epochs.Add(1)%(1<<HolderBits-1) + 1
	}
	counter.charge = Charge{Subject: c.Subject, Counter: c.Counter, Limit: c.Limit, Strict: c.Strict, Critical: true, OnStoreFailure: c.OnStoreFailure}
	if counter.current == nil {
		counter.current = &slotHolder{counter: counter, id: id, setAt: time.Now()}
	}
	return counter
}

func (c *slotCounter) lease() time.Duration { return c.charge.Limit.Window }

// inUse returns how many units requests on this node have or are about to get.
func (c *slotCounter) inUse() (units int64) {
	if c.current != nil {
		units = c.current.inUse + c.current.pending
	}
	for _, h := range c.closed {
		units += h.inUse + h.pending
	}
	return units
}

// keeps reports whether released units may be kept for the next request.
func (c *slotCounter) keeps() bool {
	return !c.charge.Strict && 100*c.used < keepBelow*c.charge.Limit.Count
}

// observe records what a result says about the counter.
func (c *slotCounter) observe(r *Result, now time.Time) {
	c.used, c.clock = c.charge.Limit.Count-r.Remaining, r.Time.Sub(now)
}

// settle records the result of a ticket's charge, and returns how many units the request has. It completes the charge and its result.
func (k *slotKeeper) settle(t *slotTicket, c *Charge, r *Result, allowed bool) (units int64) {
	h, now := t.holder, time.Now()
	counter := h.counter
	counter.stripe.mu.Lock()
	defer counter.stripe.mu.Unlock()
	c.Cost = t.kept + t.requested
	h.pending, h.spending = h.pending-c.Cost, h.spending-t.kept
	granted := int64(0)
	if t.requested == 0 {
		*r = Result{Allowed: true, Remaining: max(0, counter.charge.Limit.Count-counter.used), Time: now.Add(counter.clock), Path: PathLease}
	} else {
		granted = h.recorded(t, r, now)
	}
	undecided := r.Err != nil || r.Path == PathLocal
	if allowed && r.Allowed && (granted == t.requested || undecided && !c.Observe) {
		units = c.Cost
		h.inUse += units
		counter.stats.inUse.Add(units)
	} else {
		h.kept += t.kept
	}
	switch {
	case undecided && (r.Err == nil || errors.Is(r.Err, ErrUnanswered)):
		h.giveUp(now)
	case undecided && units > 0:
		h.doubt(now)
	}
	r.Granted, r.Receipt = units, Receipt{Units: units}
	k.schedule(h, h.dueAt(now))
	return units
}

// recorded records the result of a charge that acquires units, and returns how many the store has granted.
func (h *slotHolder) recorded(t *slotTicket, r *Result, now time.Time) (granted int64) {
	h.outstanding--
	h.acquiring -= t.requested
	if r.Err != nil || r.Path == PathLocal || r.Path == PathNone {
		return 0
	}
	granted = r.Granted
	h.counter.observe(r, now)
	if granted > 0 {
		h.renew(t.since.sent)
	}
	h.stored += granted
	if !h.verify(&t.since, r.HolderUnits, granted, t.requested, 0) {
		h.doubt(now)
	}
	return granted
}

// heldSlots are the units that a request has in use.
type heldSlots struct {
	keeper *slotKeeper
	since  time.Time
	done   atomic.Bool
	first  [1]slotUnits // the usual number, without another allocation
	units  []slotUnits
}

type slotUnits struct {
	holder *slotHolder
	units  int64
}

// release gives the units back. It does so once.
func (s *heldSlots) release(elapsed time.Duration) {
	if s.done.Swap(true) {
		return
	}
	now := time.Now()
	if since := now.Sub(s.since); elapsed <= 0 || elapsed > since { // a caller may say anything
		elapsed = since
	}
	for _, u := range s.units {
		u.holder.release(s.keeper, u.units, elapsed, now)
	}
}

// release gives back units that a request had for a while.
func (h *slotHolder) release(k *slotKeeper, units int64, elapsed time.Duration, now time.Time) {
	counter := h.counter
	counter.stripe.mu.Lock()
	defer counter.stripe.mu.Unlock()
	for h.movedTo != nil {
		h = h.movedTo
	}
	if h.inUse >= units { // else close or drop has given all of them back
		h.inUse -= units
		counter.stats.inUse.Add(-units)
	}
	counter.stats.requests.Add(1)
	counter.stats.held.Add(int64(elapsed))
	if counter.mean == 0 {
		counter.mean = elapsed
	}
	counter.mean += (elapsed - counter.mean) / 8
	if counter.current == h && counter.keeps() && !k.closing.Load() {
		if h.kept == 0 {
			h.keptUntil, h.leastKept = now.Add(keepFor), 0
		}
		h.kept += units
	}
	k.schedule(h, h.dueAt(now))
}

// retryAfter returns an estimate of when a unit will be released.
func (k *slotKeeper) retryAfter(c *Charge) time.Duration {
	stripe := k.stripeOf(c.Subject)
	stripe.mu.Lock()
	defer stripe.mu.Unlock()
	wait := time.Duration(0)
	if counter := stripe.counters[slotKey{c.Subject, c.Counter}]; counter != nil {
		wait = counter.mean / time.Duration(max(1, c.Limit.Count))
	}
	return min(max(wait, minSlotRetry), maxSlotRetry)
}

// An estimate of when a unit is released is within these bounds.
const (
	minSlotRetry = time.Second
	maxSlotRetry = time.Minute
)

// close gives all units back, even those of requests that have not ended, and waits until the store has replied, or ctx ends.
func (k *slotKeeper) close(ctx context.Context) error {
	k.closing.Store(true)
	now := time.Now()
	for i := range k.stripes {
		stripe := &k.stripes[i]
		stripe.mu.Lock()
		for _, counter := range stripe.counters {
			for _, h := range counter.holders() {
				counter.stats.inUse.Add(-h.inUse)
				h.inUse, h.kept = 0, 0
				k.schedule(h, now) //nolint:contextcheck // releases do not belong to a request
			}
		}
		stripe.mu.Unlock()
	}
	return k.agenda.wait(ctx)
}

// holders returns all holders of a counter.
func (c *slotCounter) holders() []*slotHolder {
	if c.current == nil {
		return c.closed
	}
	return append([]*slotHolder{c.current}, c.closed...)
}
