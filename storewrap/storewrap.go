// Package storewrap makes a remote store fast and safe to depend on.
//
// A Store asks three collaborators in turn. The cache answers what this node already knows: denials that still hold, and
// units leased from the store in advance. The transport asks the store, bounded by a deadline, and by a circuit breaker and
// a concurrency limit per shard. The fallback decides what the store did not: by this node's share of each limit, kept in a
// ledger and charged to the store once it has recovered.
//
// The cache is cache.go with cachetable.go, lastanswer.go (denials), lease.go, agent.go and recall.go; the transport is transport.go
// with deadline.go, shard.go (the circuit breaker) and concurrency.go; the fallback is fallback.go with share.go, ledger.go and
// reconcile.go.
//
// The package knows what a node may decide on its own, and when it must. It does not know how to count, which it leaves to
// headgate.Decide, nor what a rule is: a charge says what should happen.
package storewrap

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate"
)

// DefaultDeadline is below the 20 ms that Envoy waits for an answer by default.
const DefaultDeadline = 10 * time.Millisecond

// Options of a Store. The zero value is ready to use.
type Options struct {
	// Deadline is how long a decision waits for the store; 0 means DefaultDeadline. A charge that was not answered by then may
	// have been recorded, and is not sent again.
	Deadline time.Duration
	// Nodes is the minimum number of nodes assumed to share each limit while the store is unavailable; 0 means 1. The number
	// that the store last reported counts if it is larger.
	Nodes int
	// LocalShare is how many percent of its fallback share a node admits while the store is unavailable; 0 means 100.
	LocalShare int
	// Log receives changes of the store's availability; nil means slog.Default().
	Log *slog.Logger
	// Observe receives the duration of each store call that a decision waited for; nil means none. It must return quickly.
	Observe func(took time.Duration)
}

// peers carries messages between the nodes that share a store, by which a node that is denied recalls the leases of the others. A
// store that can is its own: redisstore.Store does. Without peers leases end by themselves only.
type peers interface {
	// Publish sends a message to all nodes that subscribe to a channel now.
	Publish(ctx context.Context, channel string, message []byte) error
	// Subscribe passes messages on channels to hear until ctx ends or the connection breaks. The first message on each channel
	// is nil, when the subscription stands.
	Subscribe(ctx context.Context, channels []string, hear func(channel string, message []byte)) error
}

// Store wraps another store. It is safe for concurrent use.
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
	_ headgate.Store  = (*Store)(nil)
	_ headgate.Signer = (*Store)(nil)
)

// New wraps a store. Close it before the inner store.
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
	s.fleet.init(o.Nodes)
	s.background.start()
	s.transport = newTransport(store, o, &s.background)
	s.agent = newAgent(s.transport, o.Log, &s.background)
	s.cache = newCache(&s.fleet, s.agent)
	s.agent.cache = s.cache
	s.fallback = newFallback(s.transport, s.cache, &s.fleet, o.LocalShare, &s.background)
	s.transport.recovering = s.fallback.recovering
	s.transport.recovered = func(ctx context.Context) {
		s.fallback.recovered(ctx)
		s.agent.wakeUp()
	}
	s.agent.start()
	return s
}

// Close returns leases and charges the store with what it is still owed, if it is available, and ends background work. It does
// not close the inner store.
func (s *Store) Close() {
	if !s.background.end() {
		return
	}
	s.fallback.reconcile(s.background.ctx, s.fallback.onAvailableShard)
	s.agent.returnAll(s.background.ctx)
}

// Shard returns the inner store's.
func (s *Store) Shard(subject headgate.Subject) int { return s.inner.Shard(subject) }

// Namespace returns the inner store's, if it has one.
func (s *Store) Namespace() string {
	if signer, ok := s.inner.(headgate.Signer); ok {
		return signer.Namespace()
	}
	return ""
}

// SigningKeys returns the inner store's, if it has any.
func (s *Store) SigningKeys(ctx context.Context) ([][]byte, error) {
	if signer, ok := s.inner.(headgate.Signer); ok {
		return signer.SigningKeys(ctx)
	}
	return nil, nil
}

// Take decides the charges: from the cache, else by the store, else by this node's fallback share. It waits for the store up to
// its own deadline and not for ctx: a caller that has hung up is charged like any other.
//
//nolint:contextcheck // as it says
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
	err := s.ask(&p)
	if err == nil && s.cache.deniedOwnUnits(&p) {
		s.cache.awaitOwnUnits(&p, s.transport.deadline)
		err = s.ask(&p)
	}
	return err
}

// ask has the store decide what the cache did not, or else the fallback, and lets the cache observe what became of it.
func (s *Store) ask(p *plan) error {
	s.cache.bringHome(p)
	now := time.Now()
	p.sent = s.cache.at(now)
	question, answers := p.ask()
	err := s.transport.take(now, question, answers)
	s.fleet.observe(answers)
	s.agent.endReturns(p.returns, answers)
	if err != nil {
		charges, results := p.asked()
		err = s.fallback.decide(now, charges, results)
	}
	s.cache.observe(p, now)
	p.finish()
	return err
}

// localReceipts reports whether a charge gives back or releases what this node's fallback share granted.
func localReceipts(charges []headgate.Charge) bool {
	for i := range charges {
		if charges[i].Refund.Local || charges[i].Release.Local {
			return true
		}
	}
	return false
}

// resets reports whether a credit may be for units that are out on lease.
func resets(charges []headgate.Charge) bool {
	for i := range charges {
		if c := &charges[i]; c.Credit && c.Cost*leasedPart >= c.Limit.Capacity() {
			return true
		}
	}
	return false
}

// takeLocalReceipts settles local receipts in the ledger. Of what was held there the store knows nothing: it is charged with the
// actual cost.
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
	said := make([]headgate.Result, len(rest))
	err := s.Take(s.background.ctx, rest, said)
	for i, at := range index {
		results[at] = said[i]
	}
	return err
}

// failAll fills all results with an error.
func failAll(results []headgate.Result, err error) error {
	for i := range results {
		results[i] = headgate.Result{Err: err}
	}
	return err
}
