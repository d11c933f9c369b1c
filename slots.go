package headgate

import "slices"

// A concurrency limit counts units that are in use, not units per time. They belong to holders: a holder is a node, or a stream of a
// remote caller. A counter has one entry per holder, however many units the holder has, with the time until which they count. A
// holder that does not renew it in time, because it died, loses its units.
//
// An entry remembers the largest sequence number of its holder's operations. Operations that are relative, acquiring and releasing,
// may arrive in any order. Setting the units is absolute: it is ignored if an operation with a higher number came first, because the
// holder did not know of that one when it counted.

// MaxHolders is the largest number of holders that a concurrency limit's counter may have at a time.
const MaxHolders = 1_000

// SlotOp is an operation on a concurrency limit.
type SlotOp uint8

const (
	// AcquireSlots acquires Cost units if they fit, as an ordinary charge does. It renews the lease of all units of the holder.
	AcquireSlots SlotOp = iota
	// ReleaseSlots gives back Cost units of the holder, as many as it has. It does not renew the lease.
	ReleaseSlots
	// SetSlots makes the holder have exactly Cost units, even above the limit, and renews the lease. It is ignored if its Seq is
	// not above that of the holder's earlier operations, so that it may be sent again.
	SetSlots
)

// SlotHolder is what one holder has of a concurrency limit.
type SlotHolder struct {
	// ID is the Charge.Holder.
	ID uint64
	// Until is when the units expire.
	Until int64
	// Units may be 0: the entry is then kept for its Seq.
	Units int64
	// Seq is the largest Charge.Seq of the holder's operations.
	Seq int64
}

// holder returns the index of a holder, or -1.
func (s *State) holder(id uint64) int {
	return slices.IndexFunc(s.Holders, func(h SlotHolder) bool { return h.ID == id })
}

// holderUnits returns how many units the charge's holder has.
func (t *Terms) holderUnits(s *State) int64 {
	if i := s.holder(t.Holder); i >= 0 {
		return s.Holders[i].Units
	}
	return 0
}

// noSlot reports whether the charge's holder has no entry and cannot get one because there are MaxHolders.
func (t *Terms) noSlot(s *State) bool {
	return len(s.Holders)+int(s.OtherHolders) >= MaxHolders && s.holder(t.Holder) < 0
}

// dropHolders drops holders that have expired, with their units. It looks at them only if one may have expired: s.Time is not later
// than the soonest Until.
func (t *Terms) dropHolders(s *State, now int64) {
	if s.Time > now || len(s.Holders) == 0 {
		return
	}
	live := make([]SlotHolder, 0, len(s.Holders))
	s.Time = 0
	for _, h := range s.Holders {
		if h.Until <= now {
			s.Used -= h.Units
			continue
		}
		if live = append(live, h); s.Time == 0 || h.Until < s.Time {
			s.Time = h.Until
		}
	}
	s.Holders = live
}

// acquire adds units to the holder's, renews its lease and raises its sequence number.
func (t *Terms) acquire(s *State, units, now int64) {
	h := SlotHolder{ID: t.Holder}
	i := s.holder(t.Holder)
	if i >= 0 {
		h = s.Holders[i]
	}
	h.Units, h.Seq, h.Until = h.Units+units, max(h.Seq, t.Seq), max(h.Until, now+t.Window)
	s.putHolder(i, h)
	s.Used += units
}

// putHolder moves entry i to the front, with new values, or adds an entry there if i is negative. It copies because states are values.
func (s *State) putHolder(i int, h SlotHolder) {
	if i < 0 && (len(s.Holders)+int(s.OtherHolders) == 0 || h.Until < s.Time) {
		s.Time = h.Until
	}
	s.Holders = slices.Concat([]SlotHolder{h}, s.Holders[:max(0, i)], s.Holders[i+1:])
	s.Expires = max(s.Expires, wholeSeconds(h.Until))
}

// operate applies an operation that is always recorded to a settled state: a release, a set or a forced acquire. It returns how many
// units it gave back, set or added.
func (t *Terms) operate(s *State, now int64) (units int64, changed bool) {
	i := s.holder(t.Holder)
	switch {
	case t.Slots == ReleaseSlots && i < 0, i < 0 && t.noSlot(s):
		return 0, false
	case t.Slots == ReleaseSlots:
		h := s.Holders[i]
		units = min(t.MaxUnits, h.Units)
		h.Units, h.Seq = h.Units-units, max(h.Seq, t.Seq)
		if h.Units == 0 { // nothing counts, so that only the number is remembered for longer
			h.Until = max(h.Until, now+t.Window)
		}
		s.putHolder(i, h)
		s.Used -= units
	case t.Slots == SetSlots:
		if i >= 0 && t.Seq <= s.Holders[i].Seq {
			return 0, false
		}
		before := t.holderUnits(s)
		units = min(t.MaxUnits, maxUsed-s.Used+before)
		t.acquire(s, units-before, now)
	case i < 0 && t.MaxUnits == 0:
		return 0, false // a renewal of an entry that has expired
	default:
		units = min(t.MaxUnits, maxUsed-s.Used)
		t.acquire(s, units, now)
	}
	return units, true
}
