package memstore

import (
	"math"
	"sync/atomic"
)

// budget limits the number of entries of all tables of a store together. Subjects are distributed over the tables at random, so
// that a limit per table would make some tables evict while others have free capacity.
//
// It also tracks when the next entry expires, so that a full table knows whether to search for expired entries, and in which tables.
type budget struct {
	capacity int64
	// due[i] is a lower bound on when the next entry of table i expires, in Unix seconds.
	due []atomic.Int64
	_   [64]byte // keeps the fields that every call reads off the cache lines of the fields that others write
	// used is the number of entries.
	used atomic.Int64
	// soonest is a lower bound on all of due.
	soonest atomic.Int64
}

func newBudget(capacity, tables int) *budget {
	b := &budget{capacity: int64(capacity), due: make([]atomic.Int64, tables)}
	b.soonest.Store(math.MaxInt64)
	for i := range b.due {
		b.due[i].Store(math.MaxInt64)
	}
	return b
}

// take claims capacity for one entry and reports whether there was any.
func (b *budget) take() bool {
	if b.used.Load() >= b.capacity {
		return false
	}
	if b.used.Add(1) > b.capacity {
		b.used.Add(-1)
		return false
	}
	return true
}

// exceeded reports whether there are more entries than allowed.
func (b *budget) exceeded() bool { return b.used.Load() > b.capacity }

// noteExpiry records when an entry of a table expires. The table's lock must be held.
func (b *budget) noteExpiry(table int, expires int64) {
	if expires >= b.due[table].Load() {
		return
	}
	b.due[table].Store(expires)
	b.lower(expires)
}

// lower lowers soonest to expires.
func (b *budget) lower(expires int64) {
	for {
		soonest := b.soonest.Load()
		if expires >= soonest || b.soonest.CompareAndSwap(soonest, expires) {
			return
		}
	}
}

// anyExpired reports whether any table may have expired entries.
func (b *budget) anyExpired(now int64) bool {
	if b.soonest.Load() > now {
		return false
	}
	// Concurrent calls of noteExpiry write the table's due first: it is read below, or they lower soonest afterwards.
	b.soonest.Store(math.MaxInt64)
	soonest := int64(math.MaxInt64)
	for i := range b.due {
		soonest = min(soonest, b.due[i].Load())
	}
	b.lower(soonest)
	return soonest <= now
}
