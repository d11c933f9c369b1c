package headgate

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
)

const tableShards = 64

// table is a sharded hash table, so that writers block few readers. Subjects are hashes already: the first byte selects the shard,
// the second is the tag, and the last eight, which also differ among the exceptions of one subject, select the slot.
type table[V interface{ expired(now int64) bool }] struct {
	shards [tableShards]tableShard[V]
	any    atomic.Bool // whether an entry was ever set
}

// tableShard uses open addressing with linear probing. A lookup compares the tags first: all tags together fit into the CPU cache,
// so that looking up an absent subject, the usual case, costs no access to main memory, and a present one costs one.
type tableShard[V interface{ expired(now int64) bool }] struct {
	sync.RWMutex
	tags    []uint8 // 0 is free
	entries []tableEntry[V]
	count   int
	cursor  int // slot to check next for an expired entry
}

type tableEntry[V any] struct {
	key   Subject
	value V
}

func tagOf(key *Subject) uint8 { return key[1] | 1 }

// home returns the slot at which the search for a key begins.
func (s *tableShard[V]) home(key *Subject) int {
	at, _ := bits.Mul64(binary.BigEndian.Uint64(key[8:]), uint64(len(s.tags)))
	return int(at)
}

func (s *tableShard[V]) next(at int) int {
	if at++; at == len(s.tags) {
		return 0
	}
	return at
}

// find returns the slot of a key, or the free slot for it and false.
func (s *tableShard[V]) find(key *Subject) (at int, ok bool) {
	tag := tagOf(key)
	for at = s.home(key); s.tags[at] != 0; at = s.next(at) {
		if s.tags[at] == tag && s.entries[at].key == *key {
			return at, true
		}
	}
	return at, false
}

// grow enlarges the shard by a quarter, so that between 64 and 80 % of the slots are in use.
func (s *tableShard[V]) grow() {
	tags, entries := s.tags, s.entries
	n := max(16, len(s.tags)*5/4)
	s.tags, s.entries, s.cursor = make([]uint8, n), make([]tableEntry[V], n), 0
	for i, tag := range tags {
		if tag != 0 {
			at, _ := s.find(&entries[i].key)
			s.tags[at], s.entries[at] = tag, entries[i]
		}
	}
}

// free empties a slot and moves back the entries that it had displaced.
func (s *tableShard[V]) free(at int) {
	s.count--
	for hole := at; ; {
		at = s.next(at)
		if s.tags[at] == 0 {
			s.tags[hole], s.entries[hole] = 0, tableEntry[V]{}
			return
		}
		home := s.home(&s.entries[at].key)
		if (at-home+len(s.tags))%len(s.tags) >= (at-hole+len(s.tags))%len(s.tags) {
			s.tags[hole], s.entries[hole] = s.tags[at], s.entries[at]
			hole = at
		}
	}
}

func (t *table[V]) get(key Subject) (v V, ok bool) {
	if !t.any.Load() {
		return v, false
	}
	shard := &t.shards[key[0]%tableShards]
	shard.RLock()
	if shard.count > 0 {
		var at int
		if at, ok = shard.find(&key); ok {
			v = shard.entries[at].value
		}
	}
	shard.RUnlock()
	return v, ok
}

// set sets the value of a key. It also checks three slots for expired entries, so that more slots are checked than filled.
func (t *table[V]) set(key Subject, v V, now int64) {
	t.any.Store(true)
	shard := &t.shards[key[0]%tableShards]
	shard.Lock()
	defer shard.Unlock()
	if (shard.count+1)*5 > len(shard.tags)*4 {
		shard.grow()
	}
	for range 3 {
		if shard.tags[shard.cursor] != 0 && shard.entries[shard.cursor].value.expired(now) {
			shard.free(shard.cursor)
		} else {
			shard.cursor = shard.next(shard.cursor)
		}
	}
	at, ok := shard.find(&key)
	if !ok {
		shard.count++
	}
	shard.tags[at], shard.entries[at] = tagOf(&key), tableEntry[V]{key, v}
}

func (t *table[V]) remove(key Subject) {
	shard := &t.shards[key[0]%tableShards]
	shard.Lock()
	defer shard.Unlock()
	if shard.count == 0 {
		return
	}
	if at, ok := shard.find(&key); ok {
		shard.free(at)
	}
}

func (t *table[V]) len() int {
	n := 0
	for i := range t.shards {
		t.shards[i].RLock()
		n += t.shards[i].count
		t.shards[i].RUnlock()
	}
	return n
}
