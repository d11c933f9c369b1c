package memstore

import (
	"math"
	"sync/atomic"
)

// budget is how many entries all tables of a store may have together. Subjects spread over the tables by chance, so that a
// bound on each alone would have some of them evict while others have room.
//
// It also knows when the next entry expires, so that a table without room can tell whether it would do to look for expired
// entries, and in which tables.
type budget struct {
	most int64
	// due[i] is no later than when any entry of table i expires, in Unix seconds.
	due []atomic.Int64
	_   [64]byte // keeps what every call reads off the cache lines of what others write
	// used is how many entries there are.
	used atomic.Int64
	// soonest is no later than any of due.
	soonest atomic.Int64
}

func newBudget(most, tables int) *budget {
	b := &budget{most: int64(most), due: make([]atomic.Int64, tables)}
	b.soonest.Store(math.MaxInt64)
	for i := range b.due {
		b.due[i].Store(math.MaxInt64)
	}
	return b
}

// take claims room for one entry, if there is any.
func (b *budget) take() bool {
	if b.used.Load() >= b.most {
		return false
	}
	if b.used.Add(1) > b.most {
		b.used.Add(-1)
		return false
	}
	return true
}

// exceeded reports whether there are more entries than allowed.
func (b *budget) exceeded() bool { return b.used.Load() > b.most }

// expects notes when an entry of a table expires. The table's lock is held.
func (b *budget) expects(table int, expires int64) {
	if expires >= b.due[table].Load() {
		return
	}
	b.due[table].Store(expires)
	b.lower(expires)
}

func (b *budget) lower(expires int64) {
	for {
		soonest := b.soonest.Load()
		if expires >= soonest || b.soonest.CompareAndSwap(soonest, expires) {
			return
		}
	}
}

// anyExpired reports whether some table may have expired entries.
func (b *budget) anyExpired(now int64) bool {
	if b.soonest.Load() > now {
		return false
	}
	// What others note meanwhile they do in the table's due first: it is seen here or lowers soonest afterwards.
	b.soonest.Store(math.MaxInt64)
	soonest := int64(math.MaxInt64)
	for i := range b.due {
		soonest = min(soonest, b.due[i].Load())
	}
	b.lower(soonest)
	return soonest <= now
}
