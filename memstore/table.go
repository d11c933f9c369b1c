package memstore

import (
	"math"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/holdtable"
)

const (
	minSlots = 16
	// sweepSlots is how many slots every insert checks for expired entries: the cursor completes a round before a quarter of the
	// table can have been refilled.
	sweepSlots = 4
	// sampleEntries is the number of entries from which a full table selects the one to evict.
	sampleEntries = 16
)

// table keeps the entries of a shard in one flat array with linear probing: an entry is in the slot that its hash points to or, if
// that was taken, in the next free one. Removing an entry moves later entries forward, so that a search ends at the first empty
// slot. A slot is a cache line and has no pointers, so that the garbage collector does not scan it.
//
// Entries do not expire automatically: every insert moves a cursor over a few slots and drops the expired entries. If the store is
// full, all expired entries are dropped before a live one is evicted.
type table struct {
	budget  *budget
	number  int // index of this table in the budget
	slots   []slot
	used    int // number of entries
	share   int // expected number of entries of a full store
	cursor  int // slot to check next for an expired entry
	evicted int64
	logs    side[log]
	holders side[[]headgate.SlotHolder]
	holds   holdtable.Table
}

// slot is the state of one counter.
type slot struct {
	subject headgate.Subject
	counter headgate.Counter
	time    int64
	used    int64
	prev    int64
	expires int64 // 0 in an empty slot
	hash    uint32
	side    uint32 // number in logs or, with ofHolders, in holders; 0 means none
}

// key identifies a counter.
type key struct {
	subject headgate.Subject
	counter headgate.Counter
	hash    uint32 // of subject and counter
}

func (s *slot) is(k *key) bool {
	return s.hash == k.hash && s.counter == k.counter && s.subject == k.subject && !s.empty()
}

func (s *slot) empty() bool { return s.expires == 0 }

func (s *slot) expired(now int64) bool { return s.expires <= now && !s.empty() }

// load sets state to a counter's state and returns its slot, or -1 if the counter has none.
func (t *table) load(k *key, state *headgate.State) int {
	i := t.find(k)
	if i >= 0 {
		s := &t.slots[i]
		*state = headgate.State{Time: s.time, Used: s.used, Prev: s.prev, Expires: s.expires}
		if s.side != 0 {
			t.loadSide(s.side, state)
		}
	}
	return i
}

// keep writes back the state of a counter that was loaded from slot i. It drops a state that has expired or was never charged. It
// reports whether the store now exceeds its capacity, since there may be expired entries in other tables.
func (t *table) keep(k *key, i int, state *headgate.State, now int64) (over bool) {
	if i >= 0 && (i >= len(t.slots) || !t.slots[i].is(k)) { // an insert of the same call has moved or evicted it
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
		t.budget.noteExpiry(t.number, state.Expires)
	}
	s.time, s.used, s.prev, s.expires = state.Time, state.Used, state.Prev, state.Expires
	s.side = t.keepSide(s.side, state)
	return over
}

// find returns the slot of a counter, or -1.
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

// insert claims a slot for a counter that has none. The caller sets its state.
func (t *table) insert(k *key, now int64) (i int, over bool) {
	switch removed := t.sweep(now); {
	case removed > 1:
		t.budget.used.Add(int64(1 - removed))
	case removed == 0 && !t.budget.take():
		over = t.freeOne(now)
	}
	if t.used >= len(t.slots)*4/5 {
		t.rebuild(now)
	}
	t.used++
	i = t.free(k.hash)
	t.slots[i] = slot{subject: k.subject, counter: k.counter, hash: k.hash}
	return i, over
}

// freeOne claims capacity for one entry in a full store: by dropping the table's expired entries, or else by evicting one. It must
// not lock other tables and leaves their expired entries to Store.reclaim; until then there is one entry too many, and freeOne
// returns true.
func (t *table) freeOne(now int64) (over bool) {
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

// sweep advances the cursor and removes the expired entries that it passes. It returns how many, and leaves their capacity to the
// caller.
func (t *table) sweep(now int64) (removed int) {
	for range min(sweepSlots, len(t.slots)) {
		if t.slots[t.cursor].expired(now) {
			t.remove(t.cursor)
			removed++
		} else {
			t.cursor = t.next(t.cursor)
		}
	}
	return removed
}

// sweepAll drops all expired entries. No entry is missed: an entry that a removal moves forward moves to a slot that is still to be
// checked, or from a slot that was checked.
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

// evict removes one entry: among the next few entries after the cursor, the one that would expire first. A counter in heavy use
// expires late, so that a flood of new counters evicts its own.
func (t *table) evict(now int64) {
	soonest := -1
	for seen := 0; seen < min(sampleEntries, t.used); t.cursor = t.next(t.cursor) {
		s := &t.slots[t.cursor]
		if s.empty() {
			continue
		}
		if soonest < 0 || s.expires < t.slots[soonest].expires {
			soonest = t.cursor
		}
		seen++
	}
	if !t.slots[soonest].expired(now) {
		t.evicted++
	}
	t.remove(soonest)
}

// drop removes the entry of slot i and releases its capacity.
func (t *table) drop(i int) {
	t.remove(i)
	t.budget.used.Add(-1)
}

// remove empties slot i. Each following entry moves forward into the hole unless the hole is before the entry's home slot; the hole
// is then where the entry was.
func (t *table) remove(i int) {
	t.dropSide(t.slots[i].side)
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

// rebuild moves the live entries into a new array, 1.5 times as large as they need. A table with its full share of entries gets an
// array of which a fifth is empty, which keeps searches short; from there on it grows in small steps, since no table gets far above
// its share.
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
	t.used, t.cursor = live, 0
	for i := range old {
		switch s := &old[i]; {
		case s.expired(now):
			t.dropSide(s.side)
		case !s.empty():
			t.slots[t.free(s.hash)] = *s
		}
	}
}

// free returns the empty slot for a new entry.
func (t *table) free(hash uint32) int {
	i := t.home(hash)
	for !t.slots[i].empty() {
		i = t.next(i)
	}
	return i
}

// home returns the slot that a hash points to.
func (t *table) home(hash uint32) int { return int(uint64(hash) * uint64(len(t.slots)) >> 32) }

func (t *table) next(i int) int {
	if i++; i < len(t.slots) {
		return i
	}
	return 0
}

// distance returns how many slots to is after from, wrapping around.
func (t *table) distance(from, to int) int {
	if to < from {
		to += len(t.slots)
	}
	return to - from
}
