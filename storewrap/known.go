package storewrap

import (
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// known is what this node knows of counters: what was last left of them, until when they refuse, and what it holds of them in
// advance. It has room for 65,536, in sets of four; in a full set the one that was needed longest ago is forgotten.
type known struct {
	shards [shards]struct {
		mu      sync.Mutex
		entries []entry // made when the first is needed
		_       [64]byte
	}
	leases leases
}

const (
	shards   = 64
	perShard = 1_024
	ways     = 4
)

// instant is a time on this node's clock: since a second before the store was made, so that 0 is long ago.
type instant = time.Duration

type entry struct {
	subject headgate.Subject
	counter headgate.Counter
	limit   uint64 // the numbers that all of it is about
	needed  instant

	// What the store has said last, for this node's share; unused is when the counter is as if never used, or 0 if nothing is
	// known.
	remaining int64
	heard     instant
	unused    instant

	denial denial
	demand demand
	lease  *lease
}

func (e *entry) is(c *headgate.Charge) bool { return e.counter == c.Counter && e.subject == c.Subject }

// lock is the set of a counter, for its own use until the mutex is unlocked.
func (k *known) lock(c *headgate.Charge) ([]entry, *sync.Mutex) {
	h := hash(0, c, 0)
	shard := &k.shards[h%shards]
	shard.mu.Lock()
	if shard.entries == nil {
		shard.entries = make([]entry, perShard)
	}
	at := h / shards % (perShard / ways) * ways
	return shard.entries[at : at+ways], &shard.mu
}

// find is nil if nothing is known of the counter.
func find(set []entry, c *headgate.Charge) *entry {
	for i := range set {
		if set[i].is(c) {
			return &set[i]
		}
	}
	return nil
}

// claim is find, or else a new entry. What was known by other numbers of the limit no longer holds.
func (k *known) claim(set []entry, c *headgate.Charge, now instant) *entry {
	limit := numbers(&c.Limit)
	e := find(set, c)
	switch {
	case e != nil && e.limit == limit:
		e.needed = now
		return e
	case e == nil:
		e = &set[0]
		for i := range set {
			if set[i].needed < e.needed {
				e = &set[i]
			}
		}
	}
	k.leases.abandon(e)
	*e = entry{subject: c.Subject, counter: c.Counter, limit: limit, needed: now}
	return e
}

// numbers tells limits apart.
func numbers(l *headgate.Limit) uint64 {
	h := uint64(l.Count)
	for _, word := range [...]uint64{
		uint64(l.Window), uint64(l.Burst), uint64(l.Algorithm) | uint64(l.Align)<<8 | uint64(l.Calendar)<<16 | uint64(l.AnchorDay)<<24,
	} {
		h = (h ^ word) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// has is true if the store has said something that is not taken yet.
func (k *known) has(c *headgate.Charge) bool {
	set, mu := k.lock(c)
	defer mu.Unlock()
	e := find(set, c)
	return e != nil && e.unused != 0
}

// take is what was last left, and forgets it: from then on the node's own count goes on, until the store says more. It is
// false if the store has said nothing since.
func (k *known) take(c *headgate.Charge) (remaining int64, unused instant, heard bool) {
	set, mu := k.lock(c)
	defer mu.Unlock()
	e := find(set, c)
	if e == nil || e.unused == 0 {
		return 0, 0, false
	}
	remaining, unused = e.remaining, e.unused
	e.remaining, e.unused = 0, 0
	return remaining, unused, true
}
