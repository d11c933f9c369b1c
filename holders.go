package headgate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// Holder is who has units of a concurrency limit.
type Holder struct {
	// Node is the name of the node. It is "" if no such node is known, for example because it was killed.
	Node string
	// ID distinguishes the holders of a counter. A node has one as a rule, and another one while it repairs the first.
	ID    uint64
	Units int64
	// Until is when the units expire. A live node postpones it every third of the lease.
	Until time.Time
}

// SlotStore is a Store that knows who has the units of concurrency limits.
type SlotStore interface {
	Store
	// HolderID returns the ID of a holder on this node, which no other call returns, or 0 if it has none to offer. Its lowest HolderBits are 0,
	// and number further holders of the same limiter.
	HolderID() uint64
	// Holders returns who has units of a counter, in any order.
	Holders(ctx context.Context, s Subject, c Counter) ([]Holder, error)
}

// HolderBits is the number of bits of a Holder's ID that number the holders of one limiter.
const HolderBits = 12

// HoldersAt returns who has units at a time. Their nodes are not known.
func (s *State) HoldersAt(now time.Time) (all []Holder) {
	for _, h := range s.Holders {
		if until := time.UnixMicro(h.Until); h.Units > 0 && until.After(now) {
			all = append(all, Holder{ID: h.ID, Units: h.Units, Until: until})
		}
	}
	return all
}

// Holders returns who has units of a concurrency limit, with those that have most first. The error is [errors.ErrUnsupported] if the store is not a
// SlotStore.
func (l *Limiter) Holders(ctx context.Context, limit *LimitDecision) ([]Holder, error) {
	store, ok := l.store.(SlotStore)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	all, err := store.Holders(ctx, limit.Subject, limit.Counter)
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// ReleaseOwn releases all units that a holder of this limiter has of a concurrency limit, and returns how many requests had in use;
// false if this limiter has no such holder. It is for operators, if Done was never called: requests of the holder that still run no longer count.
func (l *Limiter) ReleaseOwn(s Subject, c Counter, holder uint64) (units int64, ok bool) {
	return l.slots.drop(slotKey{s, c}, holder)
}

// ReleaseHolder releases all units that a holder has of a concurrency limit in the store, and returns how many. It is for operators, if the holder's
// node was killed and the lease is long: a live node sets its units again.
func (l *Limiter) ReleaseHolder(ctx context.Context, limit *LimitDecision, holder uint64) (units int64, err error) {
	charges := [1]Charge{{
		Subject: limit.Subject, Counter: limit.Counter, Limit: limit.Limit, Slots: ReleaseSlots, Holder: holder, Cost: MaxCost, Critical: true,
	}}
	var results [1]Result
	err = take(ctx, l.store, charges[:], results[:])
	return results[0].Granted, err
}

// drop releases all units of a holder, whose requests no longer count.
func (k *slotKeeper) drop(key slotKey, id uint64) (units int64, ok bool) {
	stripe, now := k.stripeOf(key.subject), time.Now()
	stripe.mu.Lock()
	defer stripe.mu.Unlock()
	counter := stripe.counters[key]
	if counter == nil {
		return 0, false
	}
	for _, h := range counter.holders() {
		if h.id != id {
			continue
		}
		h.close() // so that the end of its requests does not release units of later ones
		units = h.inUse
		counter.stats.inUse.Add(-units)
		h.inUse = 0
		k.schedule(h, now)
		return units, true
	}
	return 0, false
}

// SlotStats are numbers of a rule's concurrency limits on this node.
type SlotStats struct {
	// InUse is how many units requests have at the moment.
	InUse int64
	// Requests is how many requests have released units, and Held how long they had them in total.
	Requests int64
	Held     time.Duration
	// Expired is how many units were in use when their lease ended, because the node or the store was stalled or unavailable.
	Expired int64
	// Repairs is how often the store had recorded another number of units than were in use, or might have.
	Repairs int64
}

// SlotStats returns numbers of the concurrency limits of all rules that were used since the limiter was made, by rule ID.
func (l *Limiter) SlotStats() map[string]SlotStats {
	all := map[string]SlotStats{}
	for rule, value := range l.slots.stats.Range {
		id, _ := rule.(string)
		s, _ := value.(*slotStats)
		all[id] = SlotStats{
			InUse: s.inUse.Load(), Requests: s.requests.Load(), Held: time.Duration(s.held.Load()),
			Expired: s.expired.Load(), Repairs: s.repairs.Load(),
		}
	}
	return all
}

// slotStats are the SlotStats of a rule.
type slotStats struct{ inUse, requests, held, expired, repairs atomic.Int64 }

// statsOf returns the numbers of a rule.
func (k *slotKeeper) statsOf(rule string) *slotStats {
	value, ok := k.stats.Load(rule)
	if !ok {
		value, _ = k.stats.LoadOrStore(rule, &slotStats{})
	}
	s, _ := value.(*slotStats)
	return s
}
