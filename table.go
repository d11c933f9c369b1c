package headgate

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
)

const tableShards = 64

// table is a hash table in shards, so that writers do not hold up readers. Subjects are spread evenly already, so they are
// their own hash: the first byte picks the shard, the second is the tag, and the last eight, which differ also among the
// exceptions of one subject, pick the place.
type table[V interface{ over(now int64) bool }] struct {
	shards [tableShards]tableShard[V]
	any    atomic.Bool // whether there was ever an entry
}

// tableShard is open addressing with linear probing. The tags are looked at first: all of them together stay in the
// cache, so that a subject that is not there, as most are not, costs no trip to memory, and one that is there costs one.
type tableShard[V interface{ over(now int64) bool }] struct {
	sync.RWMutex
	tags    []uint8 // 0 is free
	entries []tableEntry[V]
	held    int
	hand    int // where to look next for what has expired
}

type tableEntry[V any] struct {
	key   Subject
	value V
}

func tagOf(key *Subject) uint8 { return key[1] | 1 }

// home is where a key's search begins.
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

// find is where the key is, or the free place where it would be.
func (s *tableShard[V]) find(key *Subject) (at int, ok bool) {
	tag := tagOf(key)
	for at = s.home(key); s.tags[at] != 0; at = s.next(at) {
		if s.tags[at] == tag && s.entries[at].key == *key {
			return at, true
		}
	}
	return at, false
}

// grow by a quarter, so that between 64 and 80 % are in use.
func (s *tableShard[V]) grow() {
	tags, entries := s.tags, s.entries
	n := max(16, len(s.tags)*5/4)
	s.tags, s.entries, s.hand = make([]uint8, n), make([]tableEntry[V], n), 0
	for i, tag := range tags {
		if tag != 0 {
			at, _ := s.find(&entries[i].key)
			s.tags[at], s.entries[at] = tag, entries[i]
		}
	}
}

// free empties a place and moves up what was pushed on by it.
func (s *tableShard[V]) free(at int) {
	s.held--
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
	if shard.held > 0 {
		var at int
		if at, ok = shard.find(&key); ok {
			v = shard.entries[at].value
		}
	}
	shard.RUnlock()
	return v, ok
}

// set also removes a few entries that have expired: more places are swept than are taken.
func (t *table[V]) set(key Subject, v V, now int64) {
	t.any.Store(true)
	shard := &t.shards[key[0]%tableShards]
	shard.Lock()
	defer shard.Unlock()
	if (shard.held+1)*5 > len(shard.tags)*4 {
		shard.grow()
	}
	for range 3 {
		if shard.tags[shard.hand] != 0 && shard.entries[shard.hand].value.over(now) {
			shard.free(shard.hand)
		} else {
			shard.hand = shard.next(shard.hand)
		}
	}
	at, ok := shard.find(&key)
	if !ok {
		shard.held++
	}
	shard.tags[at], shard.entries[at] = tagOf(&key), tableEntry[V]{key, v}
}

func (t *table[V]) remove(key Subject) {
	shard := &t.shards[key[0]%tableShards]
	shard.Lock()
	defer shard.Unlock()
	if shard.held == 0 {
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
		n += t.shards[i].held
		t.shards[i].RUnlock()
	}
	return n
}
