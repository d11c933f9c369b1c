package storewrap

import (
	"encoding/binary"
	"sync"

	"github.com/headgate/headgate"
)

const (
	cacheShards  = 64
	setsPerShard = 256
	ways         = 4
)

// cacheSet holds up to four entries. The subjects are stored together, so that a lookup reads few cache lines.
type cacheSet struct {
	subjects [ways]headgate.Subject
	entries  [ways]entry
}

// lock returns the entry of a counter, or nil, with its mutex locked. The caller unlocks it.
func (c *cache) lock(subject headgate.Subject, counter headgate.Counter) (*entry, *sync.Mutex) {
	set, mu := c.lockSet(subject, counter)
	return set.find(subject, counter), mu
}

// lockSet returns the set of a counter with its mutex locked.
func (c *cache) lockSet(subject headgate.Subject, counter headgate.Counter) (*cacheSet, *sync.Mutex) {
	h := hash(c.salt, subject, counter, 0)
	shard := &c.table[h%cacheShards]
	shard.mu.Lock()
	if shard.sets == nil {
		shard.sets = make([]cacheSet, setsPerShard)
	}
	return &shard.sets[h/cacheShards%setsPerShard], &shard.mu
}

func (s *cacheSet) find(subject headgate.Subject, counter headgate.Counter) *entry {
	for i := range s.subjects {
		if s.subjects[i] == subject && s.entries[i].counter == counter && s.entries[i].lastUsed != 0 {
			return &s.entries[i]
		}
	}
	return nil
}

// getOrCreate returns the counter's entry with its mutex locked. An entry of another limit is dropped, and so is the least
// recently used one if the set is full; their leases are returned.
func (c *cache) getOrCreate(charge *headgate.Charge, now instant) (*entry, *sync.Mutex) {
	s, mu := c.lockSet(charge.Subject, charge.Counter)
	e := s.find(charge.Subject, charge.Counter)
	if e != nil && e.limit == charge.Limit {
		e.lastUsed = now
		return e, mu
	}
	if e == nil {
		oldest := 0
		for i := range s.entries {
			if s.entries[i].lastUsed < s.entries[oldest].lastUsed {
				oldest = i
			}
		}
		e = &s.entries[oldest]
		if e.held(now) > 0 || e.last.denies(now) {
			c.evicted.Add(1)
		}
		c.agent.enqueueReturns(e.returnLeases(s.subjects[oldest])...)
		s.subjects[oldest] = charge.Subject
	} else {
		c.agent.enqueueReturns(e.returnLeases(charge.Subject)...)
	}
	*e = entry{counter: charge.Counter, limit: charge.Limit, lastUsed: now}
	e.demand.countedSince = now
	return e, mu
}

// hash returns a pseudo-random number that is the same for the same salt, counter and window.
func hash(salt uint64, subject headgate.Subject, counter headgate.Counter, window int64) uint64 {
	h := salt ^ uint64(counter)
	for _, word := range [...]uint64{
		binary.LittleEndian.Uint64(subject[:]), binary.LittleEndian.Uint64(subject[8:]), uint64(window),
	} {
		h = (h ^ word) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}
