package storewrap

import (
	"errors"

	"github.com/headgate/headgate"
)

// Stats is a snapshot of a Store's counters. Totals count from the Store's creation.
type Stats struct {
	// ShardsUnavailable is the number of shards whose circuit is open now. CircuitOpened is how often a circuit has opened.
	ShardsUnavailable int
	CircuitOpened     int64
	// Errors counts decisions that the store did not make.
	Errors Errors
	// PendingCounters is the number of counters with units that this node admitted locally and that the store is not charged
	// with yet.
	PendingCounters int
	// Charged is how many of such units the store was charged with. OverLimit is how many of them were over the limit.
	Charged, OverLimit int64
	// Unanswered is the number of units in calls that the store did not answer in time. They may have been charged.
	Unanswered int64
	// InFlight is the number of store calls in flight now. Rejected is how many were not made because too many were in
	// flight.
	InFlight, Rejected int64
	// Leases is the number of current leases. Leased, Returned and LeaseLost are units: leased in total, returned unspent,
	// and lost in calls that the store did not answer or with a shard that stayed unavailable. Lost units stay charged until
	// their window ends, and no client gets them.
	Leases                      int
	Leased, Returned, LeaseLost int64
	// FalseDenials is the maximum number of requests that the cache denied although the store would have granted them.
	FalseDenials int64
	// CacheEvicted is the number of counters with a lease or a cached denial that were evicted from the cache. LedgerEvicted
	// is the number of counters that were evicted from the fallback's ledger while still needed: their units may be admitted
	// again, and are not charged to the store.
	CacheEvicted, LedgerEvicted int64
}

// Errors counts decisions that the store did not make, by reason.
type Errors struct {
	// Unavailable: the call failed. Unanswered: the store did not answer in time. CircuitOpen: the call was not made because
	// the shard's circuit is open. Rejected: the call was not made because too many were in flight.
	Unavailable, Unanswered, CircuitOpen, Rejected int64
}

// errorKind is an index of transport.errors, in increasing order of severity.
type errorKind int

const (
	circuitOpen errorKind = iota
	rejected
	unavailable
	late
	errorKinds
)

// countError counts a decision by the most severe error of its charges.
func (t *transport) countError(results []headgate.Result) {
	worst := errorKind(-1)
	for i := range results {
		switch err := results[i].Err; {
		case err == nil:
		case unanswered(err):
			worst = max(worst, late)
		case errors.Is(err, errOpen):
			worst = max(worst, circuitOpen)
		case errors.Is(err, errBusy):
			worst = max(worst, rejected)
		default:
			worst = max(worst, unavailable)
		}
	}
	if worst >= 0 {
		t.errors[worst].Add(1)
	}
}

// Stats returns the current values.
func (s *Store) Stats() Stats {
	t, a, f := s.transport, s.agent, s.fallback
	a.mu.Lock()
	leases := len(a.expiring)
	a.mu.Unlock()
	var inFlight int64
	t.shards.Range(func(_, s any) bool {
		inFlight += s.(*shard).calls.inFlight.Load() //nolint:errcheck,forcetypeassert // all values are shards
		return true
	})
	return Stats{
		ShardsUnavailable: int(t.unavailable.Load()), CircuitOpened: t.opened.Load(),
		Errors: Errors{
			Unavailable: t.errors[unavailable].Load(), Unanswered: t.errors[late].Load(),
			CircuitOpen: t.errors[circuitOpen].Load(), Rejected: t.errors[rejected].Load(),
		},
		PendingCounters: f.ledger.pending(), Charged: f.charged.Load(), OverLimit: f.overLimit.Load(),
		Unanswered: t.unanswered.Load(), InFlight: inFlight, Rejected: t.rejected.Load(),
		Leases: leases, Leased: a.taken.Load(), Returned: a.returned.Load(), LeaseLost: a.lost.Load(),
		FalseDenials: s.cache.falseDenials.Load(), CacheEvicted: s.cache.evicted.Load(), LedgerEvicted: f.ledger.evicted.Load(),
	}
}
