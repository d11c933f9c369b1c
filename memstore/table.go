package memstore

import (
	"math"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/holdtable"
)

const (
	minSlots = 16
	// sweepSlots is how many slots every insert searches for expired entries: the hand comes round before a quarter of the
	// table can have been filled anew.
	sweepSlots = 4
	// sampleEntries is among how many entries a full table chooses the one to evict.
	sampleEntries = 16
)

// table holds the entries of a shard in one flat array: an entry is in the slot its hash points to or, if that was taken,
// in the next one free. An entry that leaves pulls those behind it forward, so that a search ends at the first empty
// slot. A slot is a cache line and holds no pointer, so that the garbage collector has nothing to do here.
//
// Nothing happens by itself when entries expire: a hand goes round the slots and drops them, a few slots per insert. Where
// there is no room for another entry, all that have expired are dropped before one that has not is evicted.
type table struct {
	budget  *budget
	number  int // of this table in the budget
	slots   []slot
	used    int // slots not empty
	share   int // entries to expect if all tables have as many
	hand    int // the slot to be searched next for expired entries
	evicted int64
	logs    logs
	holds   holdtable.Table
}

type slot struct {
	subject headgate.Subject
	counter headgate.Counter
	time    int64
	used    int64
	prev    int64
	expires int64 // 0 in an empty slot
	hash    uint32
	log     uint32 // where logs has it; 0 means none
}

type key struct {
	subject headgate.Subject
	counter headgate.Counter
	hash    uint32 // of the others
}

func (s *slot) is(k *key) bool {
	return s.hash == k.hash && s.counter == k.counter && s.subject == k.subject && !s.empty()
}

func (s *slot) empty() bool { return s.expires == 0 }

func (s *slot) expired(now int64) bool { return s.expires <= now && !s.empty() }

// load reads a counter's state and returns its slot, or -1 if there is none.
func (t *table) load(k *key, state *headgate.State) int {
	i := t.find(k)
	if i >= 0 {
		s := &t.slots[i]
		log := t.logs.at(s.log)
		*state = headgate.State{
			Time: s.time, Used: s.used, Prev: s.prev, Expires: s.expires, Log: log.entries, Credited: log.credited,
			LastHold: log.lastHold,
		}
	}
	return i
}

// keep writes back the state of a counter that was loaded from slot i. One that has expired, or never was charged, is
// not kept. It reports whether the store now has more entries than allowed, although some may have expired in other tables.
func (t *table) keep(k *key, i int, state *headgate.State, now int64) (over bool) {
	if i >= 0 && (i >= len(t.slots) || !t.slots[i].is(k)) { // an insert for the same call has moved or evicted it
		i = t.find(k)
	}
	switch {
	case state.Expires > now && i < 0:
		i, over = t.insert(k, now)
	case state.Expires > now:
	case i >= 0:
		t.drop(i)
		return false
	default:
		return false
	}
	s := &t.slots[i]
	if s.empty() || state.Expires < s.expires {
		t.budget.expects(t.number, state.Expires)
	}
	s.time, s.used, s.prev, s.expires = state.Time, state.Used, state.Prev, state.Expires
	s.log = t.logs.put(s.log, log{state.Log, state.Credited, state.LastHold})
	return over
}

func (t *table) find(k *key) int {
	if t.used == 0 {
		return -1
	}
	for i := t.home(k.hash); ; i = t.next(i) {
		s := &t.slots[i]
		if s.is(k) {
			return i
		}
		if s.empty() {
			return -1
		}
	}
}

// insert claims a slot for a counter that has none. The caller fills it.
func (t *table) insert(k *key, now int64) (i int, over bool) {
	switch removed := t.sweep(now); {
	case removed > 1:
		t.budget.used.Add(int64(1 - removed))
	case removed == 0 && !t.budget.take():
		over = t.makeRoom(now)
	}
	if t.used >= len(t.slots)*4/5 {
		t.rebuild(now)
	}
	t.used++
	i = t.free(k.hash)
	t.slots[i] = slot{subject: k.subject, counter: k.counter, hash: k.hash}
	return i, over
}

// makeRoom finds room for one entry in a store that has none: where something has expired, or else by evicting. It must not
// wait for other tables, so that what has expired there is left to Store.reclaim; until then there is one entry too many.
func (t *table) makeRoom(now int64) (over bool) {
	if t.budget.due[t.number].Load() <= now {
		t.sweepAll(now)
		if t.budget.take() {
			return false
		}
	}
	if t.used == 0 || t.budget.anyExpired(now) {
		t.budget.used.Add(1)
		return true
	}
	t.evict(now)
	return false
}

// sweep moves the hand on and removes what it finds expired. It returns how many that were: their room is the caller's.
func (t *table) sweep(now int64) (removed int) {
	for range min(sweepSlots, len(t.slots)) {
		if t.slots[t.hand].expired(now) {
			t.remove(t.hand)
			removed++
		} else {
			t.hand = t.next(t.hand)
		}
	}
	return removed
}

// sweepAll drops everything that has expired. An entry that is pulled forward meanwhile comes to a slot that is yet to be
// searched, or from one that was.
func (t *table) sweepAll(now int64) {
	due := int64(math.MaxInt64)
	for i := range t.slots {
		for t.slots[i].expired(now) {
			t.drop(i)
		}
		if s := &t.slots[i]; !s.empty() {
			due = min(due, s.expires)
		}
	}
	t.budget.due[t.number].Store(due)
}

// evict removes one entry: it moves the hand on, but not far, and takes the one on the way that would expire soonest. A
// counter in heavy use expires late, so a flood of new ones evicts its own.
func (t *table) evict(now int64) {
	soonest := -1
	for seen := 0; seen < min(sampleEntries, t.used); t.hand = t.next(t.hand) {
		s := &t.slots[t.hand]
		if s.empty() {
			continue
		}
		if soonest < 0 || s.expires < t.slots[soonest].expires {
			soonest = t.hand
		}
		seen++
	}
	if !t.slots[soonest].expired(now) {
		t.evicted++
	}
	t.remove(soonest)
}

// drop removes the entry of slot i, and leaves its room to others.
func (t *table) drop(i int) {
	t.remove(i)
	t.budget.used.Add(-1)
}

// remove empties slot i. Each entry behind it moves forward into the hole unless that lies before its home; the hole is
// then where the entry was.
func (t *table) remove(i int) {
	t.logs.drop(t.slots[i].log)
	t.used--
	hole := i
	for i = t.next(i); !t.slots[i].empty(); i = t.next(i) {
		if t.distance(t.home(t.slots[i].hash), i) >= t.distance(hole, i) {
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = slot{}
}

// rebuild moves what has not expired into a new array, 1.5 times as large as these need. One that has its share of all
// entries allowed is only as large as it takes to have a fifth of the slots empty, which keeps searches short; from there
// on it grows in small steps, since no table gets far beyond its share.
func (t *table) rebuild(now int64) {
	old, live := t.slots, 0
	for i := range old {
		if old[i].expires > now {
			live++
		}
	}
	size, full := max(minSlots, (live+1)*15/8), t.share+t.share/4+1
	if size > full {
		size = max(full, (live+1)*21/16)
	}
	t.slots = make([]slot, size)
	t.budget.used.Add(int64(live - t.used))
	t.used, t.hand = live, 0
	for i := range old {
		switch s := &old[i]; {
		case s.expired(now):
			t.logs.drop(s.log)
		case !s.empty():
			t.slots[t.free(s.hash)] = *s
		}
	}
}

// free is the slot for a new entry.
func (t *table) free(hash uint32) int {
	i := t.home(hash)
	for !t.slots[i].empty() {
		i = t.next(i)
	}
	return i
}

// home is the slot that a hash points to.
func (t *table) home(hash uint32) int { return int(uint64(hash) * uint64(len(t.slots)) >> 32) }

func (t *table) next(i int) int {
	if i++; i < len(t.slots) {
		return i
	}
	return 0
}

// distance is how many slots to is behind from, round the end.
func (t *table) distance(from, to int) int {
	if to < from {
		to += len(t.slots)
	}
	return to - from
}
