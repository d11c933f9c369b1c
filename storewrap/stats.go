package storewrap

import (
	"errors"

	"github.com/headgate/headgate"
)

// Stats is what a Store knows of itself. Units and calls are counted since it was made.
type Stats struct {
	// ShardsUnavailable is how many shards of the store have an open circuit now, and CircuitOpened how often one has opened.
	ShardsUnavailable int
	CircuitOpened     int64
	// Errors are decisions that the store did not answer.
	Errors Errors
	// PendingCounters is how many counters have units that this node admitted on its own and the store is yet to be charged.
	PendingCounters int
	// Charged is how many such units the store was charged, and OverLimit how many of them its limits had no room for.
	Charged, OverLimit int64
	// Unanswered is how many units the store was asked for and did not answer in time. They may have been charged.
	Unanswered int64
	// InFlight is how many calls are under way now, and Rejected how many were not made because too many were.
	InFlight, Rejected int64
	// Leases is how many leases are out. Of the units Leased, some were Returned unspent, and some were lost with a store or
	// peer that did not answer: LeaseLost units stay charged until their window is over, and no client gets them.
	Leases                      int
	Leased, Returned, LeaseLost int64
	// FalseDenials is how many requests at most were denied from the cache though the store had room again.
	FalseDenials int64
	// CacheEvicted and LedgerEvicted are counters that were still of use and had to make room for others: of those with a lease
	// or a cached denial, and of those counted locally while the store is unavailable.
	CacheEvicted, LedgerEvicted int64
}

// Errors are decisions that the store did not answer, by the reason.
type Errors struct {
	// Unavailable could not be asked, Unanswered did not answer in time, CircuitOpen was not asked since its circuit is open,
	// Rejected was not asked since too many calls were under way.
	Unavailable, Unanswered, CircuitOpen, Rejected int64
}

// errorKind is an index of transport.errors; of several the highest counts.
type errorKind int

const (
	circuitOpen errorKind = iota
	rejected
	unavailable
	late
	errorKinds
)

// countError counts a decision that the store did not answer for some of its charges.
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

// Stats returns those of now.
func (s *Store) Stats() Stats {
	t, a, f := s.transport, s.agent, s.fallback
	a.mu.Lock()
	leases := len(a.expiring)
	a.mu.Unlock()
	var inFlight int64
	t.shards.Range(func(_, s any) bool {
		inFlight += s.(*shard).calls.inFlight.Load() //nolint:errcheck,forcetypeassert // it has nothing else
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
