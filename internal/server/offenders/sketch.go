package offenders

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/headgate/headgate"
)

const (
	// maxEntries is how many subjects of a rule are counted at a time.
	maxEntries = 4_096
	// keptEntries is how many of them are kept when the minute is over.
	keptEntries = 100
)

// tally is how often a subject was denied: at most denied times, and err less at least.
type tally struct {
	subject     headgate.Subject
	denied, err int64
	name        string // see encodeName; empty if not known
}

// sketch counts denials by subject, those of the most denied best: Space-Saving. While there is room everybody is counted
// exactly. After that a newcomer takes the place of whoever has the least, and counts on from there, with that as its error; so
// nobody who was denied more often than the least has is missing.
type sketch struct {
	entries []entry
	// slots find an entry by its subject: its index + 1 at the first free place from its hash on. A map would take three times the
	// room of all the rest, with so many coming and going.
	slots []int32
	seed  maphash.Seed
	// heap has the indexes of the entries, the one with the least first; empty until there is no room.
	heap []int32
	// names is how many bytes those in the entries have.
	names int
}

type entry struct {
	tally
	hash uint32
	at   int32 // where in heap
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
		i = s.least()
		e := &s.entries[i]
		s.names -= len(e.name)
		s.leave(e)
		e.tally, e.hash = tally{subject: subject, denied: e.denied, err: e.denied}, hash
		slot, _ = s.find(subject, hash) // who left may have made room before it
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
	room := max(2, 2*cap(s.entries))
	s.entries = append(make([]entry, 0, room), s.entries...)
	s.slots = make([]int32, 2*room)
	for i := range s.entries {
		slot, _ := s.find(s.entries[i].subject, s.entries[i].hash)
		s.slots[slot] = int32(i) + 1
	}
}

// hash is by a seed, so that nobody can make subjects that stand in each other's way.
func (s *sketch) hash(subject headgate.Subject) uint32 {
	return uint32(maphash.Bytes(s.seed, subject[:]))
}

// find is the slot of a subject and its entry, or the slot that it would have and -1.
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

// leave frees the slot of an entry. Those behind it that would not be found any more move up.
func (s *sketch) leave(e *entry) {
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

// least is the entry with the smallest count. From the first time on there is a heap.
func (s *sketch) least() int32 {
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

// sink puts an entry whose count has grown where it belongs in the heap.
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

// best is the entries with the highest counts. The first that is cut off is the floor; if none is, everybody is there.
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
