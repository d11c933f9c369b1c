package headgate

import (
	"errors"
	"time"
)

// slotHolder is this node's account of one holder: what its requests have in use, and what the store has recorded. A counter normally
// has one holder per node. If the two disagree while operations are always on their way, the next requests use another holder, and
// this one, which no longer acquires units, is soon set to what it has.
type slotHolder struct {
	counter *slotCounter
	id      uint64
	movedTo *slotHolder // has the units of this holder's requests now, if not nil
	inUse   int64       // units of requests
	pending int64       // units of requests that are not decided
	// kept are units that were released here but not in the store, spending those of them that requests are about to use. Up to
	// leastKept of the kept units were not needed since the last turn, and are given back at keptUntil.
	kept, spending, leastKept int64
	keptUntil                 time.Time

	stored  int64     // units that the store has recorded
	renewed time.Time // when the operation was sent that last renewed the lease

	// Operations that the store has not answered, and their units.
	outstanding          int
	acquiring, releasing int64
	// Units of all acquires and releases so far.
	acquired, released int64
	setting            bool  // SetSlots is outstanding, or the current holder acquires this one's units
	sets               int64 // how often it began or ended

	// doubts counts the events after which stored may be wrong; the first resolved of them are repaired.
	doubts, resolved int64
	doubtedAt        time.Time
	recheckAt        time.Time // when operations that were given up have been recorded, if ever; zero if there are none
	setAt            time.Time // when SetSlots was last recorded, or the holder made
	failures         int
	retryAt          time.Time // of operations, after a failure
	// due is when the keeper looks at the holder, index its place in the agenda, which guards both. due is zero if nothing is to be done.
	due   time.Time
	index int
}

// slotSnapshot is a holder when an operation was sent.
type slotSnapshot struct {
	sent                                             time.Time
	stored, acquiring, releasing, acquired, released int64
	sets                                             int64
}

// begin counts an operation that is about to be sent.
func (h *slotHolder) begin(now time.Time) slotSnapshot {
	h.outstanding++
	return slotSnapshot{now, h.stored, h.acquiring, h.releasing, h.acquired, h.released, h.sets}
}

const (
	// closeAfter is how long a holder waits to know its units until requests use another one.
	closeAfter = 50 * time.Millisecond
	// recheckAfter is how long after its timeout the store may still record an operation.
	recheckAfter = time.Second
	// After a failure, operations are sent again after minSlotBackoff, which doubles up to maxSlotBackoff.
	minSlotBackoff = 50 * time.Millisecond
	maxSlotBackoff = 500 * time.Millisecond
)

// doubt records that the store's count may differ from stored.
func (h *slotHolder) doubt(now time.Time) {
	if !h.unsure() {
		h.counter.stats.repairs.Add(1)
	}
	h.check(now)
}

// check has the units set, to be sure.
func (h *slotHolder) check(now time.Time) {
	if !h.unsure() {
		h.doubtedAt = now
	}
	h.doubts++
}

// renew records that an operation renewed the lease when it was sent, or later.
func (h *slotHolder) renew(sent time.Time) {
	if sent.Sub(h.renewed) > h.counter.lease() {
		h.counter.stats.expired.Add(h.stored)
	}
	if sent.After(h.renewed) {
		h.renewed = sent
	}
}

// giveUp records that an operation was not answered.
func (h *slotHolder) giveUp(now time.Time) {
	h.doubt(now)
	h.recheckAt = now.Add(recheckAfter)
}

func (h *slotHolder) unsure() bool { return h.doubts > h.resolved }

func (h *slotHolder) closed() bool { return h.counter.current != h }

// close has new requests use another holder. The keeper then makes the store agree with what this one has.
func (h *slotHolder) close() {
	if c := h.counter; !h.closed() {
		c.current, c.closed = nil, append(c.closed, h)
	}
	h.kept = 0
}

// want returns how many units the store should have recorded.
func (h *slotHolder) want() int64 { return h.inUse + h.kept + h.spending }

// excess returns how many units are to be released in the store.
func (h *slotHolder) excess() int64 { return h.stored - h.want() }

// wrong reports whether the units are to be set: the store's count may be wrong, or the holder no longer releases units.
func (h *slotHolder) wrong() bool { return h.unsure() || h.closed() && h.want() != h.stored }

// heartbeat returns when the lease is to be renewed.
func (h *slotHolder) heartbeat() time.Time { return h.renewed.Add(h.counter.lease() / 3) }

// fail delays the next operation.
func (h *slotHolder) fail(now time.Time) {
	h.retryAt = now.Add(min(minSlotBackoff<<min(h.failures, 10), maxSlotBackoff))
	h.failures++
}

// verify compares the holder's units after an operation, as the store reports them, with what they can be: operations that were
// outstanding at the same time may have been recorded before or after it. change is what the operation itself has changed, acquired
// and released what it was to.
func (h *slotHolder) verify(since *slotSnapshot, units, change, acquired, released int64) bool {
	if since.sets != h.sets || h.setting || h.unsure() {
		return true // it proves nothing
	}
	low := since.stored + change - (since.releasing + h.released - since.released - released)
	high := since.stored + change + since.acquiring + h.acquired - since.acquired - acquired
	return units >= low && units <= high
}

// giveBackKept ends the keeping of units that were not needed for a while, or of all if the counter is nearly used up.
func (h *slotHolder) giveBackKept(now time.Time) {
	switch {
	case h.kept == 0:
	case h.closed() || !h.counter.keeps():
		h.kept = 0
	case !now.Before(h.keptUntil):
		h.kept -= h.leastKept
		h.leastKept, h.keptUntil = h.kept, now.Add(keepFor)
	}
}

// dueAt returns when the holder needs an operation; zero if only the answer to another one can change that, or if nothing is to be
// done.
func (h *slotHolder) dueAt(now time.Time) (at time.Time) {
	heartbeat := h.heartbeat()
	switch {
	case h.setting:
		return at
	case h.wrong():
		if h.outstanding > 0 && h.closed() {
			return at
		}
		at = now
		if h.outstanding > 0 {
			at = h.doubtedAt.Add(closeAfter)
		}
	case h.excess() > 0:
		at = now
	case h.kept > 0:
		at = h.keptUntil
		if !h.counter.keeps() {
			at = now
		}
	case h.stored > 0 || h.inUse > 0:
		at = heartbeat
	default:
		return h.recheckAt
	}
	if h.stored > 0 && heartbeat.Before(at) {
		at = heartbeat
	}
	if !h.recheckAt.IsZero() && h.recheckAt.Before(at) {
		at = h.recheckAt
	}
	if at.Before(h.retryAt) {
		at = h.retryAt
	}
	return at
}

// slotOperation is an operation on a concurrency limit that no request waits for.
type slotOperation struct {
	holder *slotHolder
	from   *slotHolder // whose units the holder acquires; nil if it is not a move
	charge Charge
	since  slotSnapshot
	doubts int64
}

// next returns the operation that the holder needs now, or nil.
func (h *slotHolder) next(k *slotKeeper, now time.Time) *slotOperation {
	h.giveBackKept(now)
	late := !now.Before(h.heartbeat()) && (h.stored > 0 || h.inUse > 0)
	alone := h.outstanding == 0
	if !h.recheckAt.IsZero() && !now.Before(h.recheckAt) || late && !alone && now.Sub(h.setAt) > h.counter.lease() {
		h.recheckAt, h.setAt = time.Time{}, now
		h.check(now)
	}
	if h.unsure() && !alone && !h.closed() && !now.Before(h.doubtedAt.Add(closeAfter)) {
		h.close()
	}
	op := &slotOperation{holder: h, charge: h.counter.charge, doubts: h.doubts}
	switch {
	case h.setting || now.Before(h.retryAt):
		return nil
	case late && alone && h.movable():
		return h.counter.current.moveFrom(h, k, now)
	case alone && (h.wrong() || late):
		op.charge.Slots, op.charge.Cost = SetSlots, h.want()
	case !h.unsure() && !h.closed() && h.excess() > 0:
		op.charge.Slots, op.charge.Cost = ReleaseSlots, h.excess()
	case late:
		op.charge.Force = true
	default:
		return nil
	}
	op.since = h.begin(now)
	op.charge.Holder, op.charge.Seq = h.id, k.seq.Add(1)
	switch op.charge.Slots {
	case SetSlots:
		h.setting = true
		h.sets++
	case ReleaseSlots:
		h.releasing += op.charge.Cost
		h.released += op.charge.Cost
	}
	return op
}

// movable reports whether the counter's current holder can take over the units: the store has recorded exactly those of requests. A
// holder whose requests last would otherwise need an entry and renewals of its own until the last of them ends, as would the next.
func (h *slotHolder) movable() bool {
	current := h.counter.current
	return h.closed() && current != nil && !current.unsure() && !h.wrong() && h.inUse > 0 && h.inUse == h.stored && h.pending == 0 && h.recheckAt.IsZero()
}

// moveFrom acquires the units of another holder, even above the limit. That one is set to zero afterwards, so that they are never missing.
func (h *slotHolder) moveFrom(from *slotHolder, k *slotKeeper, now time.Time) *slotOperation {
	op := &slotOperation{holder: h, from: from, charge: h.counter.charge, since: h.begin(now)}
	op.charge.Force, op.charge.Cost, op.charge.Holder, op.charge.Seq = true, from.stored, h.id, k.seq.Add(1)
	h.acquiring += op.charge.Cost
	h.acquired += op.charge.Cost
	from.setting = true
	return op
}

// finishMove records the result of acquiring another holder's units. Some of its requests may have ended in the meantime.
func (h *slotHolder) finishMove(op *slotOperation, r *Result, now time.Time) {
	units := op.charge.Cost
	op.from.setting = false
	h.acquiring -= units
	if r.Err != nil {
		op.from.fail(now)
		if errors.Is(r.Err, ErrUnanswered) {
			h.giveUp(now)
		}
		return
	}
	h.counter.observe(r, now)
	h.stored += r.Granted
	if !h.verify(&op.since, r.HolderUnits, r.Granted, units, 0) {
		h.doubt(now)
	}
	if r.Granted == units {
		h.inUse, op.from.inUse, op.from.movedTo = h.inUse+op.from.inUse, 0, h
	} else { // there are too many holders
		op.from.fail(now)
	}
}

// finish records the result of an operation.
func (h *slotHolder) finish(op *slotOperation, r *Result, now time.Time) {
	h.outstanding--
	units := op.charge.Cost
	if op.from != nil {
		h.finishMove(op, r, now)
		return
	}
	switch op.charge.Slots {
	case SetSlots:
		h.setting = false
		h.sets++
	case ReleaseSlots:
		h.releasing -= units
	}
	if r.Err != nil {
		h.fail(now)
		if op.charge.Slots == ReleaseSlots && errors.Is(r.Err, ErrUnanswered) {
			h.giveUp(now)
		}
		return
	}
	h.failures = 0
	h.counter.observe(r, now)
	switch op.charge.Slots {
	case SetSlots:
		if r.Granted != units || r.HolderUnits != units { // overtaken, or there are too many holders
			if h.unsure() {
				h.fail(now)
			}
			return
		}
		// Operations that were answered since have a higher number, and were recorded after this one.
		h.renew(op.since.sent)
		h.stored += units - op.since.stored
		h.resolved, h.setAt = op.doubts, op.since.sent
	case ReleaseSlots:
		h.stored -= units
		if r.Granted != units || !h.verify(&op.since, r.HolderUnits, -units, 0, units) {
			h.doubt(now)
		}
	default:
		if !h.verify(&op.since, r.HolderUnits, 0, 0, 0) {
			h.doubt(now)
		}
		h.renew(op.since.sent)
	}
}

// finished reports whether the holder has nothing left, here and in the store.
func (h *slotHolder) finished() bool {
	return h.want() == 0 && h.pending == 0 && h.stored == 0 && h.outstanding == 0 && !h.unsure() && h.recheckAt.IsZero()
}
