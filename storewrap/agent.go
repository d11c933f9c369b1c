package storewrap

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

const (
	// batchDelay is how long the agent waits for more work before it makes a call. No request waits for it.
	batchDelay = 2 * time.Millisecond
	// agentBatch is the maximum number of charges in one call.
	agentBatch = 32
	// backgroundTimeout is how long a background call waits for the store. A lease that arrives late is used or returned.
	backgroundTimeout = time.Second
	// maxReturns is how many returns may wait for an unavailable shard. More are dropped and counted as lost.
	maxReturns = 65_536
)

// agent acquires and returns leases in the background. It makes one call at a time per shard, with all work that has queued
// up since the last one.
type agent struct {
	cache      *cache
	transport  *transport
	peers      peers // nil if the store does not implement it
	log        *slog.Logger
	background *background
	wake       chan struct{}

	mu       sync.Mutex
	queues   map[int]*leaseQueue // by shard
	expiring expiries
	// returning counts the returns of each counter that the store has not answered yet. Units move from a lease to returning
	// under the counter's lock.
	returning map[counterKey]int
	recalls   []byte
	node      [8]byte // ID of this node in recalls

	taken, returned, lost atomic.Int64 // units
}

// leaseQueue is the work that waits for one shard.
type leaseQueue struct {
	shard        *shard
	acquisitions []*acquisition
	returns      []headgate.Charge
	calling      bool
}

// acquisition is a lease that is being acquired.
type acquisition struct {
	charge       headgate.Charge
	term         time.Duration
	since        instant       // when it was requested
	noLeaseUntil instant       // demand.noLeaseUntil when it was requested; a recall changes it
	done         chan struct{} // closed when the store has answered
}

// expiry is the time at which a lease ends.
type expiry struct {
	end     instant
	subject headgate.Subject
	counter headgate.Counter
	number  int64
}

func newAgent(t *transport, log *slog.Logger, b *background) *agent {
	peers, _ := t.store.(peers)
	return &agent{
		transport: t, peers: peers, log: log, background: b, wake: make(chan struct{}, 1),
		queues: map[int]*leaseQueue{}, returning: map[counterKey]int{}, node: newNodeID(),
	}
}

// start starts the agent's goroutines, which end when the store is closed.
func (a *agent) start() {
	a.background.run(a.run)
	if a.peers != nil {
		a.background.run(a.listenForRecalls)
	}
}

// run sends queued work, and ends leases when they expire.
func (a *agent) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(a.untilNextExpiry())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.wake:
			delay := time.NewTimer(batchDelay)
			select {
			case <-ctx.Done():
				delay.Stop()
				return
			case <-delay.C:
			}
		}
		a.endLeases(a.cache.now())
		a.sendAll()
	}
}

// wakeUp makes run look for work. It does not block.
func (a *agent) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// queue returns the queue of a subject's shard. The caller holds a.mu.
func (a *agent) queue(subject headgate.Subject) *leaseQueue {
	shard := a.transport.shardOf(subject)
	q := a.queues[shard.number]
	if q == nil {
		q = &leaseQueue{shard: shard}
		a.queues[shard.number] = q
	}
	return q
}

// acquire queues the acquisition of a lease.
func (a *agent) acquire(x *acquisition) {
	a.mu.Lock()
	q := a.queue(x.charge.Subject)
	q.acquisitions = append(q.acquisitions, x)
	a.mu.Unlock()
	a.wakeUp()
}

// enqueueReturns queues charges that return units to the store.
func (a *agent) enqueueReturns(returns ...headgate.Charge) {
	if len(returns) == 0 {
		return
	}
	a.mu.Lock()
	for i := range returns {
		q := a.queue(returns[i].Subject)
		if len(q.returns) >= maxReturns {
			a.lost.Add(returns[i].Cost)
			continue
		}
		q.returns = append(q.returns, returns[i])
		a.returning[counterKey{returns[i].Subject, returns[i].Counter}]++
	}
	a.mu.Unlock()
	a.wakeUp()
}

// beginReturns counts returns that a request carries to the store.
func (a *agent) beginReturns(returns []headgate.Charge) {
	if len(returns) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range returns {
		a.returning[counterKey{returns[i].Subject, returns[i].Counter}]++
	}
}

// isReturning reports whether units of a counter are on their way back to the store.
func (a *agent) isReturning(subject headgate.Subject, counter headgate.Counter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.returning[counterKey{subject, counter}] > 0
}

// endReturns records the outcome of returns. A return that the store did not answer may have been recorded. It is not
// repeated but counted as lost, so that the limit is never exceeded. A return that the store certainly did not record is
// queued again.
func (a *agent) endReturns(returns []headgate.Charge, results []headgate.Result) {
	for i := range returns {
		// In this order, so that units always are held, returning or returned.
		a.cache.returned(returns[i].Subject, returns[i].Counter)
		key := counterKey{returns[i].Subject, returns[i].Counter}
		a.mu.Lock()
		if a.returning[key]--; a.returning[key] <= 0 {
			delete(a.returning, key)
		}
		a.mu.Unlock()
		switch err := results[i].Err; {
		case err == nil:
			a.returned.Add(returns[i].Cost)
		case unanswered(err):
			a.lost.Add(returns[i].Cost)
		default:
			a.enqueueReturns(returns[i])
		}
	}
}

// expire schedules the end of a lease.
func (a *agent) expire(x expiry) {
	a.mu.Lock()
	heap.Push(&a.expiring, x)
	first := a.expiring[0] == x
	a.mu.Unlock()
	if first {
		a.wakeUp()
	}
}

// untilNextExpiry returns how long until the next lease ends; an hour if there is none.
func (a *agent) untilNextExpiry() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.expiring) == 0 {
		return time.Hour
	}
	return max(0, a.expiring[0].end-a.cache.now())
}

// endLeases ends all leases that expire up to an instant, and queues the return of their unspent units.
func (a *agent) endLeases(until instant) {
	for {
		a.mu.Lock()
		if len(a.expiring) == 0 || a.expiring[0].end > until {
			a.mu.Unlock()
			return
		}
		x, _ := heap.Pop(&a.expiring).(expiry)
		a.mu.Unlock()
		a.cache.expired(x, until) // locks the counter, which must come before a.mu
	}
}

// sendAll starts a call to each shard with queued work, and publishes queued recalls.
func (a *agent) sendAll() {
	a.mu.Lock()
	recalls := a.recalls
	a.recalls = nil
	for _, q := range a.queues {
		if !q.calling && len(q.acquisitions)+len(q.returns) > 0 {
			q.calling = true
			a.background.run(func(ctx context.Context) { a.drain(ctx, q) })
		}
	}
	a.mu.Unlock()
	if len(recalls) > 0 {
		a.background.run(func(ctx context.Context) {
			_ = a.peers.Publish(ctx, recallChannel, recalls) // not retried: the next denial recalls again
		})
	}
}

// drain sends the work queued for a shard, batch after batch. While the shard is unavailable, acquisitions fail and returns
// wait.
func (a *agent) drain(ctx context.Context, q *leaseQueue) {
	for {
		a.mu.Lock()
		if ctx.Err() != nil || q.shard.open.Load() {
			acquisitions := q.acquisitions
			q.acquisitions, q.calling = nil, false
			a.mu.Unlock()
			for _, x := range acquisitions {
				a.cache.granted(x, &headgate.Result{Err: errOpen}, 0)
			}
			return
		}
		acquisitions, returns := q.next()
		if len(acquisitions)+len(returns) == 0 {
			q.calling = false
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		_ = a.call(ctx, acquisitions, returns) // each result has its own error
	}
}

// next removes a batch from the queue, returns first.
func (q *leaseQueue) next() (acquisitions []*acquisition, returns []headgate.Charge) {
	n := min(agentBatch, len(q.returns))
	returns, q.returns = q.returns[:n:n], q.returns[n:]
	n = min(agentBatch-n, len(q.acquisitions))
	acquisitions, q.acquisitions = q.acquisitions[:n:n], q.acquisitions[n:]
	return acquisitions, returns
}

// call sends one batch. It completes even if the store is being closed, so that all units that were sent are accounted for.
// The error is that of one of the charges.
func (a *agent) call(ctx context.Context, acquisitions []*acquisition, returns []headgate.Charge) error {
	charges := append([]headgate.Charge(nil), returns...)
	for _, x := range acquisitions {
		charges = append(charges, x.charge)
	}
	results := make([]headgate.Result, len(charges))
	sent := a.cache.now()
	err := a.transport.takeInBackground(ctx, charges, results)
	a.cache.fleet.observe(results)
	a.endReturns(returns, results[:len(returns)])
	for i, x := range acquisitions {
		r := &results[len(returns)+i]
		if r.Err != nil && unanswered(r.Err) {
			a.lost.Add(x.charge.Cost)
		}
		a.cache.granted(x, r, sent)
	}
	if errors.Is(results[0].Err, headgate.ErrUnavailable) {
		select { // back off before the next call
		case <-ctx.Done():
		case <-time.After(jitter(minProbe)):
		}
	}
	return err
}

// returnAll ends all leases and returns their units, when the store is closed.
func (a *agent) returnAll(ctx context.Context) {
	a.endLeases(1<<63 - 1)
	a.mu.Lock()
	queues := slices.Collect(maps.Values(a.queues))
	a.mu.Unlock()
	for _, q := range queues {
		for !q.shard.open.Load() {
			a.mu.Lock()
			_, returns := q.next()
			a.mu.Unlock()
			if len(returns) == 0 || a.call(ctx, nil, returns) != nil {
				break
			}
		}
	}
}

// expiries is a heap of expiries, soonest first.
type expiries []expiry

func (x expiries) Len() int           { return len(x) }
func (x expiries) Less(i, j int) bool { return x[i].end < x[j].end }
func (x expiries) Swap(i, j int)      { x[i], x[j] = x[j], x[i] }
func (x *expiries) Push(v any)        { *x = append(*x, v.(expiry)) } //nolint:errcheck,forcetypeassert // only expire pushes
func (x *expiries) Pop() any {
	last := (*x)[len(*x)-1]
	*x = (*x)[:len(*x)-1]
	return last
}
