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
	// gatherFor is how long the agent waits for more to send in one call: no request waits for it.
	gatherFor = 2 * time.Millisecond
	// agentBatch is how many charges it sends in one call.
	agentBatch = 32
	// patience is how long it waits for an answer. A lease that comes late is used or given back.
	patience = time.Second
	// maxReturns is how many returns may wait for a store that is unavailable.
	maxReturns = 65_536
)

// agent acquires and returns leases, off the path of requests. It makes one call at a time per shard, with all that has gathered
// meanwhile.
type agent struct {
	cache      *cache
	transport  *transport
	peers      peers // nil if the store carries no messages
	log        *slog.Logger
	background *background
	wake       chan struct{}

	mu       sync.Mutex
	queues   map[int]*leaseQueue // by shard
	expiring expiries
	// returning counts returns by counter, until the store has answered. What leaves a lease enters it under the counter's lock.
	returning map[counterKey]int
	recalls   []byte
	node      [8]byte // this node, in recalls

	taken, returned, lost atomic.Int64 // units
}

// leaseQueue is what waits for one shard.
type leaseQueue struct {
	shard        *shard
	acquisitions []*acquisition
	returns      []headgate.Charge
	calling      bool
}

// acquisition is a lease that is being acquired.
type acquisition struct {
	charge headgate.Charge
	term   time.Duration
	since  instant       // it is under way
	quiet  instant       // of the counter's demand when it was asked for
	done   chan struct{} // closed when it has ended
}

// expiry is when a lease ends.
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

// start begins the agent's work, which ends with the store.
func (a *agent) start() {
	a.background.run(a.run)
	if a.peers != nil {
		a.background.run(a.hearRecalls)
	}
}

// run sends what has gathered, and ends leases in time.
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
			gather := time.NewTimer(gatherFor)
			select {
			case <-ctx.Done():
				gather.Stop()
				return
			case <-gather.C:
			}
		}
		a.endLeases(a.cache.now())
		a.sendAll()
	}
}

func (a *agent) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *agent) queue(subject headgate.Subject) *leaseQueue {
	shard := a.transport.shardOf(subject)
	q := a.queues[shard.number]
	if q == nil {
		q = &leaseQueue{shard: shard}
		a.queues[shard.number] = q
	}
	return q
}

// acquire asks for a lease.
func (a *agent) acquire(x *acquisition) {
	a.mu.Lock()
	q := a.queue(x.charge.Subject)
	q.acquisitions = append(q.acquisitions, x)
	a.mu.Unlock()
	a.wakeUp()
}

// returnSoon gives back units.
func (a *agent) returnSoon(returns ...headgate.Charge) {
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

// endReturns notes what became of returns that the store has answered, or never will. What may have been recorded is not returned
// again: it is lost, which is on the safe side.
func (a *agent) endReturns(returns []headgate.Charge, results []headgate.Result) {
	for i := range returns {
		// First the one, then the other: at no time are units neither held, nor returning, nor returned.
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
			a.returnSoon(returns[i])
		}
	}
}

// expire notes when a lease ends.
func (a *agent) expire(x expiry) {
	a.mu.Lock()
	heap.Push(&a.expiring, x)
	first := a.expiring[0] == x
	a.mu.Unlock()
	if first {
		a.wakeUp()
	}
}

func (a *agent) untilNextExpiry() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.expiring) == 0 {
		return time.Hour
	}
	return max(0, a.expiring[0].end-a.cache.now())
}

// endLeases queues what is left of leases that end up to an instant.
func (a *agent) endLeases(until instant) {
	for {
		a.mu.Lock()
		if len(a.expiring) == 0 || a.expiring[0].end > until {
			a.mu.Unlock()
			return
		}
		x, _ := heap.Pop(&a.expiring).(expiry)
		a.mu.Unlock()
		a.cache.expired(x, until) // which locks the counter first, as every caller of the agent does
	}
}

// sendAll begins a call to each shard for which something waits.
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
			_ = a.peers.Publish(ctx, recallChannel, recalls) // an error is no reason to try again: the next denial will
		})
	}
}

// drain sends what waits for a shard, batch after batch. While the shard is unavailable nothing is acquired, and returns wait.
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
		_ = a.call(ctx, acquisitions, returns) // each result has its own
	}
}

// next takes a batch from the queue.
func (q *leaseQueue) next() (acquisitions []*acquisition, returns []headgate.Charge) {
	n := min(agentBatch, len(q.returns))
	returns, q.returns = q.returns[:n:n], q.returns[n:]
	n = min(agentBatch-n, len(q.acquisitions))
	acquisitions, q.acquisitions = q.acquisitions[:n:n], q.acquisitions[n:]
	return acquisitions, returns
}

// call sends one batch. It finishes also when the store is closing: what was sent must be accounted for. The error is that of one of the
// charges.
func (a *agent) call(ctx context.Context, acquisitions []*acquisition, returns []headgate.Charge) error {
	charges := append([]headgate.Charge(nil), returns...)
	for _, x := range acquisitions {
		charges = append(charges, x.charge)
	}
	results := make([]headgate.Result, len(charges))
	sent := a.cache.now()
	err := a.transport.takePatiently(ctx, charges, results)
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
		select { // a store that stumbles is not asked at once again
		case <-ctx.Done():
		case <-time.After(jitter(minProbe)):
		}
	}
	return err
}

// returnAll ends all leases and gives them back, when the store closes.
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

// expiries is a heap of leases by their end.
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
