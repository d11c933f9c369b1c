package memstore

import "github.com/headgate/headgate"

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
// Nothing happens by itself when entries expire: a hand goes round the slots and drops them, a few slots per insert.
type table struct {
	slots   []slot
	used    int // slots not empty
	most    int // entries allowed
	hand    int // the slot to be searched next for expired entries
	evicted int64
	logs    logs
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
		*state = headgate.State{Time: s.time, Used: s.used, Prev: s.prev, Expires: s.expires, Log: t.logs.at(s.log)}
	}
	return i
}

// keep writes back the state of a counter that was loaded from slot i. One that has expired, or never was charged, is
// not kept.
func (t *table) keep(k *key, i int, state *headgate.State, now int64) {
	if i >= 0 && (i >= len(t.slots) || !t.slots[i].is(k)) { // an insert for the same call has moved or evicted it
		i = t.find(k)
	}
	switch {
	case state.Expires > now && i < 0:
		i = t.insert(k, now)
	case state.Expires > now:
	case i >= 0:
		t.remove(i)
		return
	default:
		return
	}
	s := &t.slots[i]
	s.time, s.used, s.prev, s.expires = state.Time, state.Used, state.Prev, state.Expires
	s.log = t.logs.put(s.log, state.Log)
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
func (t *table) insert(k *key, now int64) int {
	t.sweep(now)
	if t.used == t.most {
		t.evict(now)
	}
	if t.used >= len(t.slots)*4/5 {
		t.rebuild(now)
	}
	t.used++
	i := t.free(k.hash)
	t.slots[i] = slot{subject: k.subject, counter: k.counter, hash: k.hash}
	return i
}

// sweep moves the hand on and drops what it finds expired.
func (t *table) sweep(now int64) {
	for range min(sweepSlots, len(t.slots)) {
		if t.slots[t.hand].expired(now) {
			t.remove(t.hand)
		} else {
			t.hand = t.next(t.hand)
		}
	}
}

// evict makes room for one entry: it moves the hand on to the first expired one, but not far, and drops that or else the
// one on the way that would expire soonest. A counter in heavy use expires late, so a flood of new ones evicts its own.
func (t *table) evict(now int64) {
	soonest := -1
	for seen := 0; seen < min(sampleEntries, t.used); t.hand = t.next(t.hand) {
		switch s := &t.slots[t.hand]; {
		case s.empty():
			continue
		case s.expired(now):
			t.remove(t.hand)
			return
		case soonest < 0 || s.expires < t.slots[soonest].expires:
			soonest = t.hand
		}
		seen++
	}
	t.remove(soonest)
	t.evicted++
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

// rebuild moves what has not expired into a new array, 1.5 times as large as these need; never more than it takes to
// hold all entries allowed with a fifth of the slots empty, which keeps searches short.
func (t *table) rebuild(now int64) {
	old, live := t.slots, 0
	for i := range old {
		if old[i].expires > now {
			live++
		}
	}
	t.slots = make([]slot, min(max(minSlots, (live+1)*15/8), t.most+t.most/4+1))
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
