// Package storewrap makes a remote store fast and safe to depend on.
//
// A Store consults three components in turn. The cache decides what this node can decide alone: denials that still hold, and
// units leased from the store in advance. The transport calls the store within a deadline, behind a circuit breaker and a
// concurrency limit per shard. The fallback decides what the store did not: by this node's share of each limit. It counts
// those units in a ledger and charges them to the store once the store has recovered.
//
// The cache is cache.go with cachetable.go, lastresult.go (denials), lease.go, agent.go and recall.go. The transport is
// transport.go with deadline.go, shard.go (the circuit breaker) and concurrency.go. The fallback is fallback.go with
// share.go, ledger.go and reconcile.go.
//
// The package knows what a node may decide alone, and when it must. It does not know the algorithms, which are in
// headgate.Decide, and it does not know rules: a charge carries everything that the store needs.
package storewrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate"
)

// DefaultDeadline is how long a decision waits for the store by default. It is below the 20 ms that Envoy waits by default.
const DefaultDeadline = 10 * time.Millisecond

// Options configures a Store. The zero value is ready to use.
type Options struct {
	// Deadline is how long a decision waits for the store; 0 means DefaultDeadline. A charge that the store has not answered
	// by then may have been recorded, and is not sent again.
	Deadline time.Duration
	// Nodes is the minimum number of nodes assumed to share each limit while the store is unavailable; 0 means 1. If the
	// store last reported a larger number, that number is used.
	Nodes int
	// LocalShare is the percentage of its fallback share that a node admits while the store is unavailable; 0 means 100, and
	// so does a value outside 1 to 100.
	LocalShare int
	// Regions is how many regions lease units of a charge with headgate.HomeRegion; 0 means 1.
	Regions int
	// RegionShare returns this region's share of the limit of such a charge, which its nodes share while the store is unavailable; nil means
	// the whole limit. If the shares of all regions add up to the limit, regions that cannot reach the store admit no more than the limit.
	RegionShare func(headgate.Subject, *headgate.Limit) headgate.Limit
	// Log receives a line when a shard's circuit opens or closes, and when lease recalls cannot be received; nil means
	// slog.Default().
	Log *slog.Logger
	// Observe receives the duration of each store call that a decision waited for; nil disables it. It is called on the path
	// of the request and must return quickly.
	Observe func(elapsed time.Duration)
}

// peers carries messages between the nodes that share a store. A node that is denied uses it to recall the leases of the
// other nodes. redisstore.Store implements it. Without it, leases end only when they expire.
type peers interface {
	// Publish sends a message to all nodes that are subscribed to a channel at that time.
	Publish(ctx context.Context, channel string, message []byte) error
	// Subscribe passes messages on channels to receive until ctx ends or the connection breaks. The first message on each
	// channel is nil and means that the subscription is active.
	Subscribe(ctx context.Context, channels []string, receive func(channel string, message []byte)) error
}

// Store wraps a headgate.Store with a cache, a deadline, a circuit breaker per shard and a local fallback. Take is used as on
// any other store; Stats reports what happened behind it. It is safe for concurrent use. Close it before the inner store.
type Store struct {
	inner      headgate.Store
	fleet      fleet
	cache      *cache
	agent      *agent
	transport  *transport
	fallback   *fallback
	background background
}

var (
	_ headgate.SlotStore = (*Store)(nil)
	_ headgate.Signer    = (*Store)(nil)
)

// New wraps a store. The caller must call Close, before closing the inner store.
func New(store headgate.Store, o Options) *Store {
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Observe == nil {
		o.Observe = func(time.Duration) {}
	}
	if o.LocalShare <= 0 || o.LocalShare > 100 {
		o.LocalShare = 100
	}
	s := &Store{inner: store}
	s.fleet.init(o.Nodes, o.Regions)
	s.background.start()
	s.transport = newTransport(store, o, &s.background)
	s.agent = newAgent(s.transport, o.Log, &s.background)
	s.cache = newCache(&s.fleet, s.agent)
	s.agent.cache = s.cache
	s.fallback = newFallback(s.transport, s.cache, &s.fleet, &o, &s.background)
	s.transport.recovering = s.fallback.recovering
	s.transport.recovered = func(ctx context.Context) {
		s.fallback.recovered(ctx)
		s.agent.wakeUp()
	}
	s.agent.start()
	return s
}

// Close stops background work, charges the pending units of the fallback to the store and returns leases, both only on shards
// that are available. It does not close the inner store.
func (s *Store) Close() {
	if !s.background.end() {
		return
	}
	s.fallback.reconcile(s.background.ctx, s.fallback.onAvailableShard)
	s.agent.returnAll(s.background.ctx)
}

// Shard returns the inner store's shard of a subject.
func (s *Store) Shard(subject headgate.Subject) int { return s.inner.Shard(subject) }

// Namespace returns the inner store's namespace, or "" if it has none.
func (s *Store) Namespace() string {
	if signer, ok := s.inner.(headgate.Signer); ok {
		return signer.Namespace()
	}
	return ""
}

// SigningKeys returns the inner store's signing keys, or nil if it has none.
func (s *Store) SigningKeys(ctx context.Context) ([][]byte, error) {
	if signer, ok := s.inner.(headgate.Signer); ok {
		return signer.SigningKeys(ctx)
	}
	return nil, nil
}

// HolderID returns an ID of the inner store, or 0 if it has none.
func (s *Store) HolderID() uint64 {
	if store, ok := s.inner.(headgate.SlotStore); ok {
		return store.HolderID()
	}
	return 0
}

// Holders returns who has units of a counter in the inner store, which must be a SlotStore.
func (s *Store) Holders(ctx context.Context, subject headgate.Subject, counter headgate.Counter) ([]headgate.Holder, error) {
	if store, ok := s.inner.(headgate.SlotStore); ok {
		return store.Holders(ctx, subject, counter)
	}
	return nil, errors.ErrUnsupported
}

// Take decides the charges: from the cache, else by the store, else by this node's fallback share. It waits for the store up
// to Options.Deadline and ignores ctx: a request whose caller has hung up is charged like any other.
//
//nolint:contextcheck // ctx is ignored on purpose
func (s *Store) Take(_ context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if len(results) != len(charges) {
		return fmt.Errorf("storewrap: %d results for %d charges", len(results), len(charges))
	}
	if localReceipts(charges) {
		return s.takeLocalReceipts(charges, results)
	}
	if resets(charges) {
		s.agent.recallForReset(charges)
	}
	p := plan{charges: charges, results: results}
	if s.cache.decide(&p) {
		return nil
	}
	err := s.takeFromStore(&p)
	if err == nil && s.cache.deniedOwnUnits(&p) {
		s.cache.awaitOwnUnits(&p, s.transport.deadline)
		err = s.takeFromStore(&p)
	}
	return err
}

// takeFromStore sends the charges that the cache did not decide to the store, has the fallback decide those that failed, and
// passes the results to the cache.
func (s *Store) takeFromStore(p *plan) error {
	s.cache.attachReturns(p)
	now := time.Now()
	p.sentAt = s.cache.at(now)
	callCharges, callResults := p.prepareCall()
	err := s.transport.take(now, callCharges, callResults)
	s.fleet.observe(callResults)
	s.agent.endReturns(p.returns, callResults)
	if err != nil {
		charges, results := p.sentCharges()
		err = s.fallback.decide(now, charges, results)
	}
	s.cache.observe(p, now)
	p.finish()
	return err
}

// localReceipts reports whether a charge refunds or releases units that this node's fallback share granted.
func localReceipts(charges []headgate.Charge) bool {
	for i := range charges {
		if charges[i].Refund.Local || charges[i].Release.Local {
			return true
		}
	}
	return false
}

// resets reports whether a charge credits so many units that some of them may be leased.
func resets(charges []headgate.Charge) bool {
	for i := range charges {
		if c := &charges[i]; c.Credit && c.Cost*leaseFraction >= c.Limit.Capacity() {
			return true
		}
	}
	return false
}

// takeLocalReceipts settles local receipts in the ledger. The store does not know of units that were held locally: if such a
// hold is committed, the store is charged with its actual cost.
func (s *Store) takeLocalReceipts(charges []headgate.Charge, results []headgate.Result) error {
	var rest []headgate.Charge
	var index []int
	now := time.Now()
	for i := range charges {
		c := charges[i]
		if c.Refund.Local || c.Release.Local {
			results[i] = s.fallback.settle(now, c)
			if c.Refund.Local || c.Cost == 0 {
				continue
			}
			c.Release, c.Force = headgate.Receipt{}, true
		}
		rest, index = append(rest, c), append(index, i)
	}
	if len(rest) == 0 {
		return nil
	}
	restResults := make([]headgate.Result, len(rest))
	err := s.Take(s.background.ctx, rest, restResults)
	for i, at := range index {
		results[at] = restResults[i]
	}
	return err
}

// failAll sets the error of all results, and returns it.
func failAll(results []headgate.Result, err error) error {
	for i := range results {
		results[i] = headgate.Result{Err: err}
	}
	return err
}
