package offenders

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/headgate/headgate"
)

const (
	// maxEntries is the maximum number of counted subjects of a rule.
	maxEntries = 4_096
	// keptEntries is the number of subjects that are stored after the minute has ended.
	keptEntries = 100
)

// tally is the number of denials of a subject: from denied - err to denied.
type tally struct {
	subject     headgate.Subject
	denied, err int64
	name        string // see encodeName; empty if unknown
}

// sketch counts denials by subject with the Space-Saving algorithm. Up to maxEntries subjects are counted exactly. After
// that, a new subject replaces the one with the lowest count and continues from that count, which becomes its error. So every
// subject that was denied more often than the lowest count is present.
type sketch struct {
	entries []entry
	// slots is an open-addressing hash table of entries: index + 1 in the first free slot from the hash on. A map would take
	// three times the memory of the other fields, with so many insertions and deletions.
	slots []int32
	seed  maphash.Seed
	// heap contains the indexes of the entries, the lowest count first. It is empty until there are maxEntries.
	heap []int32
	// names is the size of the names in the entries.
	names int
}

type entry struct {
	tally
	hash uint32
	at   int32 // index in heap
}

// add counts a denial of the subject.
func (s *sketch) add(subject headgate.Subject) *entry {
	if len(s.entries) == cap(s.entries) && len(s.entries) < maxEntries {
		s.grow()
	}
	hash := s.hash(subject)
	slot, i := s.find(subject, hash)
	switch {
	case i >= 0:
	case len(s.entries) < maxEntries:
		s.entries = append(s.entries, entry{tally: tally{subject: subject}, hash: hash})
		i = int32(len(s.entries)) - 1
		s.slots[slot] = i + 1
	default:
		i = s.lowest()
		e := &s.entries[i]
		s.names -= len(e.name)
		s.freeSlot(e)
		e.tally, e.hash = tally{subject: subject, denied: e.denied, err: e.denied}, hash
		slot, _ = s.find(subject, hash) // the freed slot may be the first one now
		s.slots[slot] = i + 1
	}
	e := &s.entries[i]
	e.denied++
	if len(s.heap) > 0 {
		s.sink(e.at)
	}
	return e
}

func (s *sketch) grow() {
	if cap(s.entries) == 0 {
		s.seed = maphash.MakeSeed()
	}
	capacity := max(2, 2*cap(s.entries))
	s.entries = append(make([]entry, 0, capacity), s.entries...)
	s.slots = make([]int32, 2*capacity)
	for i := range s.entries {
		slot, _ := s.find(s.entries[i].subject, s.entries[i].hash)
		s.slots[slot] = int32(i) + 1
	}
}

// hash uses a random seed, so that clients cannot create subjects that collide.
func (s *sketch) hash(subject headgate.Subject) uint32 {
	return uint32(maphash.Bytes(s.seed, subject[:]))
}

// find returns the slot and the entry of a subject, or the slot for a new entry and -1.
func (s *sketch) find(subject headgate.Subject, hash uint32) (slot int, entry int32) {
	mask := len(s.slots) - 1
	for slot = int(hash) & mask; s.slots[slot] != 0; slot = (slot + 1) & mask {
		i := s.slots[slot] - 1
		if e := &s.entries[i]; e.hash == hash && e.subject == subject {
			return slot, i
		}
	}
	return slot, -1
}

func (s *sketch) has(subject headgate.Subject) bool {
	if len(s.slots) == 0 {
		return false
	}
	_, i := s.find(subject, s.hash(subject))
	return i >= 0
}

// freeSlot frees the slot of an entry, and moves up following entries that would not be found any more.
func (s *sketch) freeSlot(e *entry) {
	mask := len(s.slots) - 1
	free, _ := s.find(e.subject, e.hash)
	for slot := (free + 1) & mask; s.slots[slot] != 0; slot = (slot + 1) & mask {
		if first := int(s.entries[s.slots[slot]-1].hash) & mask; (slot-first)&mask >= (slot-free)&mask {
			s.slots[free] = s.slots[slot]
			free = slot
		}
	}
	s.slots[free] = 0
}

// lowest returns the entry with the lowest count. It builds the heap on the first call.
func (s *sketch) lowest() int32 {
	if len(s.heap) == 0 {
		s.heap = make([]int32, len(s.entries))
		for i := range s.heap {
			s.heap[i], s.entries[i].at = int32(i), int32(i)
		}
		for at := len(s.heap)/2 - 1; at >= 0; at-- {
			s.sink(int32(at))
		}
	}
	return s.heap[0]
}

// sink moves an entry whose count has grown to its position in the heap.
func (s *sketch) sink(at int32) {
	i := s.heap[at]
	for {
		child := 2*at + 1
		if int(child) >= len(s.heap) {
			break
		}
		if int(child)+1 < len(s.heap) && s.entries[s.heap[child+1]].denied < s.entries[s.heap[child]].denied {
			child++
		}
		if s.entries[i].denied <= s.entries[s.heap[child]].denied {
			break
		}
		s.heap[at] = s.heap[child]
		s.entries[s.heap[at]].at = at
		at = child
	}
	s.heap[at] = i
	s.entries[i].at = at
}

// best returns the entries with the highest counts. The floor is the count of the first entry that is cut off, or 0.
func (s *sketch) best() list {
	kept := make([]tally, 0, min(len(s.entries), keptEntries+1))
	for i := range s.entries {
		e := &s.entries[i]
		if len(kept) > keptEntries {
			if e.denied <= kept[keptEntries].denied {
				continue
			}
			kept = kept[:keptEntries]
		}
		at, _ := slices.BinarySearchFunc(kept, e.denied, func(t tally, denied int64) int { return cmp.Compare(denied, t.denied) })
		kept = slices.Insert(kept, at, e.tally)
	}
	if len(kept) <= keptEntries {
		return list{kept, 0}
	}
	return list{kept[:keptEntries], kept[keptEntries].denied}
}
