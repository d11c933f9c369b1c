// Package memstore is a store that keeps counters in this process: sharded, bounded and expiring.
//
// It keeps the states of counters, drops them when they expire, and evicts some if there are too many. It leaves counting to
// headgate.Decide and does not share counters with other processes: each process counts on its own, and a restart resets all
// counters.
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

// DefaultMaxEntries is the number of counters if Options do not set it.
const DefaultMaxEntries = 1_000_000

const (
	maxShards = 256
	// minShardEntries is the smallest number of entries per shard of a full store.
	minShardEntries = 1_024
	// reclaimSlots is the number of slots after which one call stops searching further shards for expired entries: a few hundred
	// microseconds.
	reclaimSlots = 1 << 16
	// usualCharges is the number of charges up to which a request is decided without allocating.
	usualCharges = 8
)

// Options configure a Store. The zero value is valid.
type Options struct {
	// MaxEntries is the largest number of counters; 0 means DefaultMaxEntries. Each takes 80 to 120 bytes, plus 16 bytes per charge in a
	// sliding log, 32 bytes per holder of a concurrency limit and about 100 bytes per hold. No counter is evicted while at most this many are live: expired counters are
	// dropped first. Until they are found there may temporarily be a few more counters.
	MaxEntries int
	// Clock returns the store's time; nil means the system clock. Set it to test rules at given times. It is called while counters
	// are locked and must not use the store.
	Clock func() time.Time
}

// Store keeps counters in memory. It is safe for concurrent use. All charges of one call are decided atomically, even on different
// subjects.
type Store struct {
	// seed distributes subjects differently in each store, so that a client that can choose its key, and thereby its subject, cannot
	// target the shard of another client to evict that client's counters.
	seed   maphash.Seed
	shards []shard // the number of shards is a power of two
	budget *budget
	turn   atomic.Uint32 // selects the shard to reclaim next
	clock  func() time.Time
	key    []byte // signs reservation tokens
	// holders is how many IDs HolderID has returned.
	holders atomic.Uint64
}

var (
	_ headgate.SlotStore = (*Store)(nil)
	_ headgate.Signer    = (*Store)(nil)
)

type shard struct {
	mu sync.Mutex
	table
	_ [64]byte // keeps the next shard's lock off this one's cache lines
}

// New returns an empty store. Its memory grows with the number of counters.
func New(o Options) *Store {
	if o.MaxEntries <= 0 {
		o.MaxEntries = DefaultMaxEntries
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

// Take grants all charges or none. It does not block, so that it ignores the context. It returns an error only if the number of
// results differs from the number of charges.
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

// takeAll decides several charges and reports whether there are now too many entries.
func (s *Store) takeAll(charges []headgate.Charge, results []headgate.Result) (over bool) {
	var placeBuffer [usualCharges]place
	var stateBuffer [usualCharges]headgate.State
	places, states := placeBuffer[:], stateBuffer[:]
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
	// If several charges are on one counter, the first has the state to keep; writing backwards writes it last.
	for i := len(places) - 1; i >= 0; i-- {
		results[i].Nodes = 1
		p := &places[i]
		over = s.shards[p.shard].keep(&p.key, p.slot, &states[i], now) || over
		s.shards[p.shard].holds.Keep(&charges[i], &results[i])
	}
	return over
}

// takeOne decides one charge, as takeAll does but with a single lock.
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

// reclaim reduces the number of entries to MaxEntries. It drops expired entries first, in a few shards per call, so that no call
// takes long: later calls continue. It must be called with no lock held.
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

// nextShard returns the index of the next shard, in turn.
func (s *Store) nextShard() int { return int(s.turn.Add(1)) & (len(s.shards) - 1) }

// Shard returns 0 for every subject: the store has one shard.
func (s *Store) Shard(headgate.Subject) int { return 0 }

// Namespace returns "", since the counters are not shared.
func (s *Store) Namespace() string { return "" }

// SigningKeys returns a random key that is valid only for this store, as long as it exists.
func (s *Store) SigningKeys(context.Context) ([][]byte, error) { return [][]byte{s.key}, nil }

// HolderID returns a number that differs from those of other calls.
func (s *Store) HolderID() uint64 { return s.holders.Add(1) << headgate.HolderBits }

// Holders returns who has units of a counter. Their nodes have no names, since all are in this process.
func (s *Store) Holders(_ context.Context, subject headgate.Subject, counter headgate.Counter) (all []headgate.Holder, _ error) {
	var p place
	s.locate(&headgate.Charge{Subject: subject, Counter: counter}, &p)
	var state headgate.State
	s.with(int(p.shard), func(t *table) { t.load(&p.key, &state) })
	return state.HoldersAt(s.clock()), nil
}

// Len returns the number of counters, including expired ones that were not yet dropped.
func (s *Store) Len() int {
	var n int
	s.each(func(t *table) { n += t.used })
	return n
}

// Evicted returns how many counters were evicted before they expired because there were too many. Their subjects start again with a
// fresh allowance: if the number grows, raise Options.MaxEntries.
func (s *Store) Evicted() int64 {
	var n int64
	s.each(func(t *table) { n += t.evicted })
	return n
}

// each calls f for every table, with its lock held.
func (s *Store) each(f func(*table)) {
	for i := range s.shards {
		s.with(i, f)
	}
}

// with calls f for the table of a shard, with its lock held.
func (s *Store) with(shard int, f func(*table)) {
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	f(&sh.table)
}

// place is where the counter of a charge is kept.
type place struct {
	key   key
	slot  int // in the table; negative if the counter has none
	shard uint8
}

// locate sets the key and the shard of a charge. The shard depends only on the subject, so that a request with one subject takes
// one lock.
func (s *Store) locate(c *headgate.Charge, p *place) {
	const golden = 0x9E3779B97F4A7C15 // mixes every bit of the counter into the high bits of the hash
	h := maphash.Bytes(s.seed, c.Subject[:])
	p.key.subject = c.Subject
	p.key.counter = c.Counter
	p.key.hash = uint32((h + uint64(c.Counter)*golden) >> 32)
	p.shard = uint8(h & uint64(len(s.shards)-1))
}

// shardSet is the set of the shards of one call.
type shardSet [maxShards / 64]uint64

func (set *shardSet) add(shard uint8) { set[shard/64] |= 1 << (shard % 64) }

// lock locks the shards in the order of their indexes, as every call does, so that calls cannot deadlock.
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
