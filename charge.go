package headgate

import "time"

// Charge requests units of one counter. All charges of one call to Store.Take belong to one request: they are granted together
// or not at all.
//
// The kinds of charges, by the field that selects them:
//
//   - An ordinary charge takes Cost units if they fit, and otherwise denies the request.
//   - A peek (Cost 0) is decided like a cost of 1 and never recorded.
//   - A partial charge (AtLeast) accepts fewer units than Cost.
//   - An observing charge (Observe) is counted but denies nothing: for shadow limits and candidates.
//   - A hold (Hold) sets units aside if the cost is known only later. A release (Release) ends the hold and records the cost.
//   - A forced charge (Force) records its cost even above the limit.
//   - A refund (Refund) gives back units of one earlier charge, identified by its receipt.
//   - A credit (Credit) gives back units of any earlier charges.
//   - On a concurrency limit, Slots selects the operation, and Holder and Seq identify it.
//
// Releases, forced charges, refunds, credits and SetSlots deny nothing and are recorded even if the other charges of the call are
// denied.
//
// A concurrency limit has no holds, and its units have no age: Hold and Age are ignored. A refund, a credit and a release are all
// ReleaseSlots. A forced charge acquires units even above the limit; with a Cost of 0 it only renews the holder's lease, if the
// holder still has an entry.
type Charge struct {
	Subject Subject
	Counter Counter
	Limit   Limit
	// Whole is the limit of which Limit is this region's share; zero if the limit is not shared. Store wrappers use it, and a leaky
	// bucket grants no larger cost at once than its part of the whole count.
	Whole Limit
	// Absent is how many units a counter that does not exist counts as used, because the store may have lost it; at most MaxCost. A
	// refund and limits other than token buckets and windows on the clock or the calendar ignore it.
	Absent int64
	// Cost is how many units to take, at most MaxCost. 0 makes the charge a peek.
	Cost int64
	// AtLeast accepts fewer units than Cost, down to this many; 0 requires all of Cost.
	AtLeast int64
	// MaxDelay is the longest delay by a leaky bucket that the caller accepts.
	MaxDelay time.Duration
	// Observe counts without denying: the charge is recorded if it fits and no enforcing charge denies, except one on its Twin.
	Observe bool
	// Twin is the counter, on the same subject, of the limit that this observing charge is a candidate for: a denial by the twin
	// does not prevent the charge from being recorded. 0 means none.
	Twin Counter
	// Strict, Critical, OnStoreFailure and Regions are copied from the rule. Store wrappers use them; a store that counts ignores them.
	// Regions is EachRegion if there is only one, and for a concurrency limit.
	Strict, Critical bool
	OnStoreFailure   OnStoreFailure
	Regions          Regions
	// Hold sets the units aside for this long instead of recording them, at most MaxHold. The end is rounded up by at most an
	// eighth of Hold or a 64th of a second. Held units are unavailable to other charges and do not leak until a charge releases
	// them or the hold expires. A leaky bucket and a sliding log cannot hold units: they record them at once.
	Hold time.Duration
	// Prepaid records the units of a hold at once, for every algorithm: they stay recorded if the hold expires.
	Prepaid bool
	// Release ends the hold of this receipt and records Cost units in full; Cost may be 0. If the hold has expired, the units are
	// still recorded. If the hold was released before, nothing is recorded.
	Release Receipt
	// Force records Cost units in full, even above the limit.
	Force bool
	// Age is how long ago the units of a forced charge or a release were taken, if another node decided then. They are recorded
	// as far as they would still count if they had been recorded at that time.
	Age time.Duration
	// Credit gives back Cost units that the counter has recorded, for any charge. A Cost of MaxCost gives back everything and
	// leaves the counter as if unused, except for held units. A sliding window takes the units from the current window's count
	// and then from the weight of the previous window, so that usage drops by as many units. A leaky bucket shortens its queue:
	// requests allowed before keep their delay, and the next request may be served at the same time as them.
	Credit bool
	// Within bounds a credit in time, in microseconds since 1970 on the store's clock: for a window it is when the window began that the
	// credit belongs to, and in any other window nothing is given back; for a bucket it is the last time at which units are given back.
	// 0 means no bound. Other limits ignore it.
	Within int64
	// Refund gives back Cost units that an earlier charge on this counter took, as far as they still count. Each receipt may be
	// refunded once. The refund is recorded whether or not the rest of the call is granted.
	Refund Receipt
	// Slots is the operation on a concurrency limit; other limits ignore it.
	Slots SlotOp
	// Holder is who has the units of a concurrency limit, for example a node. Use random numbers.
	Holder uint64
	// Seq is the number of the holder's operation on this counter, from 1 to 2^52, higher for each new one. SetSlots states how
	// many units the holder has after all of its operations with lower numbers.
	Seq int64
	// InUse is how many units of a concurrency limit this node has in addition to Cost: for other requests, and for this one if they
	// need not be acquired. Store wrappers use it to decide while the store is unavailable; a store that counts ignores it.
	InUse int64
}

// Receipt identifies the units that a charge took, so that they can be refunded: to the same window, to the same entry of a log,
// or to a bucket as far as they have not leaked since. The receipt of a hold identifies the hold to release. The zero value
// identifies nothing.
type Receipt struct {
	// Units is how many units were granted.
	Units int64
	// Mark identifies the charge within its counter: the time of its window or log entry, the level that it left in a bucket, or
	// the number of a hold.
	Mark int64
	// Time is a bucket's time after the charge, Empty the time at which it would have drained, both in microseconds since 1970,
	// and Back how much had been given back to it until then. For a hold, Time is its end.
	Time, Empty, Back int64
	// Local means that the units were taken from a node's local share while the store was unavailable: only that node can give
	// them back.
	Local bool
}

// Undo returns the charge that takes back what was granted to this one. It returns false if nothing was granted.
func (c *Charge) Undo(r *Result) (Charge, bool) {
	if r.Receipt.Units == 0 {
		return Charge{}, false
	}
	back := Charge{
		Subject: c.Subject, Counter: c.Counter, Limit: c.Limit,
		Strict: c.Strict, Critical: c.Critical, OnStoreFailure: c.OnStoreFailure, Regions: c.Regions,
	}
	switch {
	case c.Limit.Algorithm == Concurrency:
		back.Cost, back.Slots, back.Holder, back.Seq = r.Receipt.Units, ReleaseSlots, c.Holder, c.Seq
	case c.Holds():
		back.Release = r.Receipt
	default:
		back.Cost, back.Refund = r.Receipt.Units, r.Receipt
	}
	return back, true
}

// IndexCharge returns the index of the first charge on the subject's counter, or -1 if there is none.
func IndexCharge(charges []Charge, subject Subject, counter Counter) int {
	for i := range charges {
		if charges[i].Counter == counter && charges[i].Subject == subject {
			return i
		}
	}
	return -1
}

func (c *Charge) refunds() bool  { return c.Refund.Units > 0 }
func (c *Charge) releases() bool { return c.Release.Units > 0 }
func (c *Charge) forces() bool   { return c.Force || c.releases() }
func (c *Charge) credits() bool  { return c.Credit && !c.refunds() }

// Always reports whether the charge is recorded even if the other charges of the call are denied.
func (c *Charge) Always() bool {
	return c.refunds() || c.forces() || c.Credit || c.Slots != AcquireSlots && c.Limit.Algorithm == Concurrency
}

// Enforces reports whether the charge can deny the request.
func (c *Charge) Enforces() bool { return !c.Observe && !c.Always() }

// slotOp returns the operation on a concurrency limit.
func (c *Charge) slotOp() SlotOp {
	if c.refunds() || c.Credit || c.releases() {
		return ReleaseSlots
	}
	return c.Slots
}

// Holds reports whether the charge's units, if granted, are held instead of recorded. A leaky bucket, a sliding log and a concurrency
// limit never hold: the bucket queues a delayed request at once, the log stores a time per charge anyway, and the limit has leases.
func (c *Charge) Holds() bool {
	if c.Hold <= 0 || c.Prepaid || c.Always() {
		return false
	}
	return c.Limit.Algorithm != LeakyBucket && c.Limit.Algorithm != SlidingLog && c.Limit.Algorithm != Concurrency
}
