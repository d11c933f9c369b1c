package storewrap

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// known is what this node knows of counters: what was last left of them, until when they refuse, and what it holds of them in
// advance. It has room for 65,536, in sets of four; in a full set the one that was needed longest ago is forgotten.
type known struct {
	shards [shards]struct {
		mu   sync.Mutex
		sets []set // made when the first is needed
		_    [64]byte
	}
	leases leases

	mistaken, forgotten atomic.Int64
}

const (
	shards   = 64
	perShard = 256
	ways     = 4
)

// set is where a counter's entry is, if there is one. The subjects are looked at first, which are all in one place.
type set struct {
	subjects [ways]headgate.Subject
	entries  [ways]entry
}

// instant is a time on this node's clock: since a second before the store was made, so that 0 is long ago.
type instant = time.Duration

type entry struct {
	subject headgate.Subject // as in the set
	counter headgate.Counter
	limit   uint64 // the numbers that all of it is about
	needed  instant

	// What the store has said last, for this node's share; unused is when the counter is as if never used, or 0 if nothing is
	// known.
	remaining int64
	heard     instant
	unused    instant
	clock     int64 // the store's less this node's, in microseconds

	denial denial
	demand demand
	lease  *lease
}

// time is the store's at an instant of this node.
func (e *entry) time(now instant) time.Time {
	return time.UnixMicro(e.clock + now.Microseconds()).UTC()
}

// lock is the set of a counter, for its own use until the mutex is unlocked.
func (k *known) lock(c *headgate.Charge) (*set, *sync.Mutex) {
	h := hash(0, c, 0)
	shard := &k.shards[h%shards]
	shard.mu.Lock()
	if shard.sets == nil {
		shard.sets = make([]set, perShard)
	}
	return &shard.sets[h/shards%perShard], &shard.mu
}

// find is nil if nothing is known of the counter.
func (s *set) find(c *headgate.Charge) *entry {
	for i := range s.subjects {
		if s.subjects[i] == c.Subject && s.entries[i].counter == c.Counter {
			return &s.entries[i]
		}
	}
	return nil
}

// claim is find, or else a new entry. What was known by other numbers of the limit no longer holds.
func (k *known) claim(s *set, c *headgate.Charge, now instant) *entry {
	limit := numbers(&c.Limit)
	e := s.find(c)
	switch {
	case e != nil && e.limit == limit:
		e.needed = now
		return e
	case e == nil:
		oldest := 0
		for i := range s.entries {
			if s.entries[i].needed < s.entries[oldest].needed {
				oldest = i
			}
		}
		e = &s.entries[oldest]
		if e.lease != nil && e.lease.units > 0 && now < e.lease.end || now < e.denial.until {
			k.forgotten.Add(1)
		}
		s.subjects[oldest] = c.Subject
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
	e := set.find(c)
	return e != nil && e.unused != 0
}

// take is what was last left, and forgets it: from then on the node's own count goes on, until the store says more. It is
// false if the store has said nothing since.
func (k *known) take(c *headgate.Charge) (remaining int64, unused instant, heard bool) {
	set, mu := k.lock(c)
	defer mu.Unlock()
	e := set.find(c)
	if e == nil || e.unused == 0 {
		return 0, 0, false
	}
	remaining, unused = e.remaining, e.unused
	e.remaining, e.unused = 0, 0
	return remaining, unused, true
}
