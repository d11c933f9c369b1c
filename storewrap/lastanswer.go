package storewrap

import (
	"time"

	"github.com/headgate/headgate"
)

const (
	// maxTrust is how long the cache trusts what the store said of a counter: units may be given back at any time.
	maxTrust = 500 * time.Millisecond
	// minTrust is how long a denial is trusted at first where other nodes may hold leases, which they are asked to return. It
	// doubles while the store keeps denying.
	minTrust = 25 * time.Millisecond
)

// lastAnswer is what the store last said of a counter, as long as it is trusted. Unless another node charges the counter, the store
// would say the same again.
type lastAnswer struct {
	clock     int64 // the store's less this node's, in microseconds
	remaining int64
	reset     instant
	unread    instant // until when the counter is used, for the fallback; 0 once it was read

	cost int64 // that the rest is about; 0 means nothing is known
	// The charge does not fit before denied, and does from retry on: the store decided at some time between question and answer.
	denied, retry instant
	never         bool
	trusted       instant
	trust         time.Duration // of a denial, which may have been repeated
	times         int64         // that it was repeated from here
}

// time returns the store's time at an instant of this node.
func (a *lastAnswer) time(now instant) time.Time {
	return time.UnixMicro(a.clock + now.Microseconds()).UTC()
}

// denies reports whether a denial is known and still holds.
func (a *lastAnswer) denies(now instant) bool {
	return a.cost > 0 && now < a.trusted && (a.never || now < a.denied)
}

// judge fills in what the store would say to a charge, if that is known.
func (a *lastAnswer) judge(c *headgate.Charge, r *headgate.Result, now instant) verdict {
	if c.Cost != a.cost || now >= a.trusted {
		return unknown
	}
	*r = headgate.Result{Remaining: a.remaining, ResetAfter: max(0, a.reset-now), Path: headgate.PathCache}
	switch {
	case a.never:
		r.RetryAfter = headgate.Never
	case now < a.denied:
		r.RetryAfter = a.retry - now
	default:
		r.Allowed, r.Remaining = true, max(a.remaining, c.Cost)
		return fits
	}
	a.times++
	return denied
}

// observe notes a result, and reports whether it is a denial for want of units. shared says that other nodes may hold leases.
func (a *lastAnswer) observe(c *headgate.Charge, r *headgate.Result, plain, shared bool, sent, now instant) bool {
	a.clock = r.Time.UnixMicro() - sent.Microseconds()
	a.remaining, a.reset = r.Remaining, now+r.ResetAfter
	if c.OnStoreFailure == headgate.FailLocal && !c.Observe {
		a.unread = now + max(r.UnusedAfter, r.ResetAfter)
	}
	if c.Cost == 0 && ordinary(c) {
		return false // a peek changes nothing
	}
	before := *a
	a.cost, a.trust, a.times = 0, 0, 0
	if !plain || r.Remaining >= c.Cost && !r.Allowed { // another charge on the counter was in the way, or too many holds
		return false
	}
	a.denied, a.retry, a.never, a.trusted = 0, 0, false, sent+maxTrust
	if r.Allowed {
		if r.Remaining >= c.Cost {
			a.cost = c.Cost
		} else if wait := untilNext(c, r); wait > 0 && !shared {
			a.cost, a.denied, a.retry = c.Cost, sent+wait, now+wait
		}
		return false
	}
	a.cost, a.never = c.Cost, r.RetryAfter == headgate.Never
	a.denied, a.retry = sent+max(0, r.RetryAfter), now+max(0, r.RetryAfter)
	if shared && !a.never {
		a.trust = minTrust
		if before.trust > 0 && now-before.trusted < maxTrust {
			a.trust = min(2*before.trust, maxTrust)
		}
		a.trusted = sent + a.trust
	}
	return true
}

// untilNext returns how long the same charge does not fit again after one that took the last units of a token bucket, whatever is
// given back to the store from holds; 0 if that is not known. The next request need not ask for it: of ten for each unit that a
// bucket refills, on two nodes, Redis then decides two and not three.
func untilNext(c *headgate.Charge, r *headgate.Result) time.Duration {
	if c.Limit.Algorithm != headgate.TokenBucket || r.Granted != c.Cost {
		return 0
	}
	const scale = 1_000_000 // a receipt has the level of a bucket in millionths, and when it was that full
	terms, _ := c.Terms(r.Time)
	missing := r.Receipt.Mark + (c.Cost-terms.Capacity)*scale
	if missing <= 0 {
		return 0
	}
	us, ok := mulDivUp(missing, terms.Q, terms.P)
	if !ok {
		return 0
	}
	return time.Duration(r.Receipt.Time+us-r.Time.UnixMicro()) * time.Microsecond
}

// deny makes a denial last for a while.
func (a *lastAnswer) deny(now instant, wait time.Duration) { a.denied, a.retry = now+wait, now+wait }

// falseDenials returns how many requests at most were denied from here for which the store had room, now that it has granted one:
// units were given back before they would have come back by themselves.
func (a *lastAnswer) falseDenials(c *headgate.Charge, r *headgate.Result, now instant) int64 {
	if a.times == 0 || r.Granted == 0 || a.cost == 0 || now >= a.denied && !a.never || !ordinary(c) {
		return 0
	}
	return min(a.times, (r.Granted+r.Remaining)/max(1, c.Cost))
}
