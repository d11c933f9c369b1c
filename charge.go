package headgate

import "time"

// Charge asks for units of one counter. All charges of one call to Store.Take belong to one request: they are granted
// together or not at all.
//
// Beside the ordinary charge there are: the peek (Cost 0), judged as a cost of 1 and never recorded; the partial charge
// (AtLeast); the observing charge (Observe), which is counted but denies nothing; the hold (Hold), for a cost known only
// afterwards, and its end (Release); and those that deny nothing and are recorded whatever becomes of the rest: the
// forced charge (Force), the refund (Refund) and the credit (Credit).
type Charge struct {
	Subject Subject
	Counter Counter
	Limit   Limit
	// Cost is how many units are wanted, at most MaxCost. 0 only looks.
	Cost int64
	// AtLeast makes do with fewer units than Cost, down to this many; 0 means all of Cost.
	AtLeast int64
	// MaxDelay is how long the caller is ready to wait for a leaky bucket.
	MaxDelay time.Duration
	// Observe counts without denying: when this charge fits and every enforcing one does, except for its Twin.
	Observe bool
	// Twin is the counter, on the same subject, that this observing charge is the candidate to replace: a denial by the
	// twin does not keep it from counting. 0 means none.
	Twin Counter
	// Strict, Critical and OnStoreFailure are what the rule says. They concern stores around stores: a store that counts
	// takes no notice.
	Strict, Critical bool
	OnStoreFailure   OnStoreFailure
	// Hold keeps the units for this long instead of recording them, up to MaxHold and rounded up by at most an eighth, or a
	// 64th of a second: they are not there for others, and do not leak, until a charge releases them or they come back by
	// themselves. A leaky bucket and a sliding log hold nothing: they record at once, as without it.
	Hold time.Duration
	// Release ends a hold, by its receipt, and records Cost units in full, which may be none. If the hold has run out, the
	// units are recorded all the same; if it was released before, nothing is.
	Release Receipt
	// Force records Cost units in full, also beyond the limit.
	Force bool
	// Age is how long ago the units of a forced charge or a release were taken, by whoever decided then: they are recorded
	// as far as they would still count had they been recorded at that time.
	Age time.Duration
	// Credit gives back Cost units of what the counter has recorded, whoever was charged them; a Cost of MaxCost gives back
	// everything, and leaves the counter as if unused but for what is held. A sliding window takes them from the present
	// window's count and then from what the one before still weighs, so that use sinks by as many units. A leaky bucket
	// shortens its queue: those admitted before keep the delay that they were given, and the next may go on beside them.
	Credit bool
	// Refund gives back Cost units of what an earlier charge on this counter took, as far as they still count. Each
	// receipt may be given back once, and is whether or not the rest of the call is granted.
	Refund Receipt
}

// Receipt names what a charge took, so that it can be given back: to the same window, the same entry of a log, or a
// bucket as far as it has not leaked meanwhile; or what it holds, so that it can be released. Its zero value names
// nothing.
type Receipt struct {
	// Units that were granted.
	Units int64
	// Mark is what the counter knows the charge by: the time of its window or entry, the level it left in a bucket, or the
	// number of a hold.
	Mark int64
	// Time of a bucket after the charge and when it would have drained, in microseconds since 1970; and what it had been
	// given back until then. Of a hold, Time is when it ends.
	Time, Empty, Back int64
	// Local says that it is of a node's own share while the store was away: only that node can give it back.
	Local bool
}

// Undo is the charge that takes back what this one was granted; it is false if there is nothing to take back.
func (c *Charge) Undo(r *Result) (Charge, bool) {
	if r.Receipt.Units == 0 {
		return Charge{}, false
	}
	back := Charge{
		Subject: c.Subject, Counter: c.Counter, Limit: c.Limit,
		Strict: c.Strict, Critical: c.Critical, OnStoreFailure: c.OnStoreFailure,
	}
	if c.Holds() {
		back.Release = r.Receipt
	} else {
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

// always is true of charges that are recorded whatever becomes of the rest.
func (c *Charge) always() bool   { return c.refunds() || c.forces() || c.Credit }
func (c *Charge) enforces() bool { return !c.Observe && !c.always() }

// Holds reports whether the charge's units, if they are granted, are held: what a leaky bucket delays has its place in the
// queue at once, and a log keeps a time for each unit anyway.
func (c *Charge) Holds() bool {
	return c.Hold > 0 && c.Limit.Algorithm != LeakyBucket && c.Limit.Algorithm != SlidingLog && !c.always()
}
