// Package memstore keeps counters in this process: sharded, bounded and expiring.
//
// It knows where a counter's state lies, when it may be forgotten and which one to forget if there are too many. It does
// not know how to count, which it leaves to headgate.Decide, nor of other processes: each counts for itself, and a
// restart forgets everything.
package memstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/wallclock"
)

const (
	defaultMaxEntries = 1_000_000
	maxShards         = 256
	// minShardEntries is how many entries a shard has at least when the store is full.
	minShardEntries = 1_024
	// reclaimSlots is how many slots one call searches for expired entries, if one shard has no more: a few hundred
	// microseconds.
	reclaimSlots = 1 << 16
	// usualCharges of one request are decided without allocating.
	usualCharges = 8
)

// Options of a store. The zero value is ready to use.
type Options struct {
	// MaxEntries is how many counters are kept at most; 0 means 1,000,000. Each takes 80 to 120 bytes, a sliding log 16
	// more for each charge it remembers, and each hold about 100. No counter is evicted while no more than this many are
	// live; expired ones make room first, and for as long as it takes to find them there may be a few more.
	MaxEntries int
	// Clock is the store's clock; nil means time.Now. With another one rules can be tried at given times. It is called while
	// counters are locked and must not use the store.
	Clock func() time.Time
}

// Store keeps counters in memory. It is safe for concurrent use; all charges of one call are decided at one instant,
// also those on different subjects.
type Store struct {
	// seed places subjects differently in each store, so that a client who can choose its key, and thereby its subject,
	// cannot aim at the shard of another and push that one's counters out.
	seed   maphash.Seed
	shards []shard // a power of two of them
	budget *budget
	turn   atomic.Uint32 // the shard to be searched next for what has expired
	clock  func() time.Time
	key    []byte // to sign with
}

var (
	_ headgate.Store  = (*Store)(nil)
	_ headgate.Signer = (*Store)(nil)
)

type shard struct {
	mu sync.Mutex
	table
	_ [64]byte // keeps the next shard's lock off this one's cache lines
}

// New makes an empty store. It takes memory as counters come.
func New(o Options) *Store {
	if o.MaxEntries <= 0 {
		o.MaxEntries = defaultMaxEntries
	}
	if o.Clock == nil {
		o.Clock = wallclock.New()
	}
	n := 1
	for n < maxShards && o.MaxEntries/(2*n) >= minShardEntries {
		n *= 2
	}
	s := &Store{
		seed: maphash.MakeSeed(), shards: make([]shard, n), budget: newBudget(o.MaxEntries, n), clock: o.Clock, key: []byte(rand.Text()),
	}
	for i := range s.shards {
		s.shards[i].table = table{budget: s.budget, number: i, share: (o.MaxEntries + n - 1) / n}
	}
	return s
}

// Take decides all charges or none. It waits for nothing, so the context cannot interrupt it; the only error is that
// there is not one result for each charge.
func (s *Store) Take(_ context.Context, charges []headgate.Charge, results []headgate.Result) error {
	if len(results) != len(charges) {
		return fmt.Errorf("memstore: %d results for %d charges", len(results), len(charges))
	}
	if len(charges) == 0 {
		return nil
	}
	var over bool
	if len(charges) == 1 {
		over = s.takeOne(charges, results)
	} else {
		over = s.takeAll(charges, results)
	}
	if over {
		s.reclaim(results[0].Time.Unix())
	}
	return nil
}

// takeAll decides several charges. It reports whether there are now too many entries.
func (s *Store) takeAll(charges []headgate.Charge, results []headgate.Result) (over bool) {
	var placeRoom [usualCharges]place
	var stateRoom [usualCharges]headgate.State
	places, states := placeRoom[:], stateRoom[:]
	if len(charges) > usualCharges {
		places, states = make([]place, len(charges)), make([]headgate.State, len(charges))
	}
	places, states = places[:len(charges)], states[:len(charges)]

	var locked shardSet
	for i := range charges {
		s.locate(&charges[i], &places[i])
		locked.add(places[i].shard)
	}
	s.lock(&locked)
	defer s.unlock(&locked)

	for i := range places {
		p := &places[i]
		p.slot = s.shards[p.shard].load(&p.key, &states[i])
		states[i].Hold = s.shards[p.shard].holds.Load(&charges[i])
	}
	headgate.Decide(charges, states, results, s.clock())
	now := results[0].Time.Unix()
	// Of several charges on one counter the first has the state to keep, which is therefore written last.
	for i := len(places) - 1; i >= 0; i-- {
		results[i].Nodes = 1
		p := &places[i]
		over = s.shards[p.shard].keep(&p.key, p.slot, &states[i], now) || over
		s.shards[p.shard].holds.Keep(&charges[i], &results[i])
	}
	return over
}

// takeOne is takeAll for one charge, with one lock and nothing to sort out.
func (s *Store) takeOne(charges []headgate.Charge, results []headgate.Result) (over bool) {
	var p place
	s.locate(&charges[0], &p)
	sh := &s.shards[p.shard]
	var state [1]headgate.State
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slot := sh.load(&p.key, &state[0])
	state[0].Hold = sh.holds.Load(&charges[0])
	headgate.Decide(charges, state[:], results, s.clock())
	results[0].Nodes = 1
	sh.holds.Keep(&charges[0], &results[0])
	return sh.keep(&p.key, slot, &state[0], results[0].Time.Unix())
}

// reclaim brings the store back to as many entries as are allowed. What has expired goes first, a few shards at a time, so
// that no call takes long: the next ones go on. It must be called with no lock held.
func (s *Store) reclaim(now int64) {
	searched := 0
	for range s.shards {
		if searched >= reclaimSlots || !s.budget.exceeded() {
			return
		}
		if i := s.nextShard(); s.budget.due[i].Load() <= now {
			s.with(i, func(t *table) {
				t.sweepAll(now)
				searched += len(t.slots)
			})
		}
	}
	for range s.shards {
		if !s.budget.exceeded() || s.budget.anyExpired(now) {
			return
		}
		s.with(s.nextShard(), func(t *table) {
			if t.used > 0 {
				t.evict(now)
				s.budget.used.Add(-1)
			}
		})
	}
}

// nextShard returns one shard after the other.
func (s *Store) nextShard() int { return int(s.turn.Add(1)) & (len(s.shards) - 1) }

// Shard returns 0 for every subject: the store has one shard.
func (s *Store) Shard(headgate.Subject) int { return 0 }

// Namespace returns "": nobody shares the counters.
func (s *Store) Namespace() string { return "" }

// SigningKeys returns a key that is good for this store alone, and for as long as it is.
func (s *Store) SigningKeys(context.Context) ([][]byte, error) { return [][]byte{s.key}, nil }

// Len is how many counters are held now, with those that have expired but were not yet dropped.
func (s *Store) Len() int {
	var n int
	s.each(func(t *table) { n += t.used })
	return n
}

// Evicted is how many counters were forgotten before they expired, because there were too many. Those they counted start
// again with a fresh allowance: if it grows, raise Options.MaxEntries.
func (s *Store) Evicted() int64 {
	var n int64
	s.each(func(t *table) { n += t.evicted })
	return n
}

func (s *Store) each(f func(*table)) {
	for i := range s.shards {
		s.with(i, f)
	}
}

func (s *Store) with(shard int, f func(*table)) {
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	f(&sh.table)
}

// place is where the counter of a charge is kept.
type place struct {
	key   key
	slot  int // in the table, or negative if it is not there
	shard uint8
}

// locate finds the shard by the subject alone, so that a request about one subject takes one lock.
func (s *Store) locate(c *headgate.Charge, p *place) {
	const golden = 0x9E3779B97F4A7C15 // carries every bit of the counter up into the hash
	h := maphash.Bytes(s.seed, c.Subject[:])
	p.key.subject = c.Subject
	p.key.counter = c.Counter
	p.key.hash = uint32((h + uint64(c.Counter)*golden) >> 32)
	p.shard = uint8(h & uint64(len(s.shards)-1))
}

// shardSet is the shards of one call, each of them once.
type shardSet [maxShards / 64]uint64

func (set *shardSet) add(shard uint8) { set[shard/64] |= 1 << (shard % 64) }

// lock locks the shards in the order of their indices, as every call does, so that no two calls wait for each other.
func (s *Store) lock(set *shardSet) {
	for word, left := range set {
		for ; left != 0; left &= left - 1 {
			s.shards[word*64+bits.TrailingZeros64(left)].mu.Lock()
		}
	}
}

func (s *Store) unlock(set *shardSet) {
	for word, left := range set {
		for ; left != 0; left &= left - 1 {
			s.shards[word*64+bits.TrailingZeros64(left)].mu.Unlock()
		}
	}
}
