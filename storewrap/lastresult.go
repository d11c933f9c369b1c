package storewrap

import (
	"time"

	"github.com/headgate/headgate"
)

const (
	// maxTrust is how long the cache trusts the store's last result for a counter. It is short because units may be given
	// back at any time.
	maxTrust = 500 * time.Millisecond
	// minTrust is how long a first denial is trusted if other nodes may hold leases, which they are asked to return. It
	// doubles while the store keeps denying.
	minTrust = 25 * time.Millisecond
)

// lastResult is the store's last result for a counter, as long as it is trusted. Unless another node charges the counter, the
// store would decide the same again.
type lastResult struct {
	clock         int64 // the store's time minus this node's instant, in microseconds
	decided       int64 // the store's time of remaining and reset, in microseconds
	remaining     int64
	reset         instant
	fallbackUntil instant // remaining matters to the fallback until then; 0 once it was read

	cost int64 // of the charge that the fields below describe; 0 if nothing is known
	// The charge does not fit before denied, and fits from retry on. They differ because the store decided at an unknown time
	// between call and reply.
	denied, retry instant
	never         bool
	trusted       instant
	trust         time.Duration // how long the current denial is trusted
	repeats       int64         // how often the cache repeated the denial
}

// time returns the store's time at an instant of this node.
func (a *lastResult) time(now instant) time.Time {
	return time.UnixMicro(a.clock + now.Microseconds()).UTC()
}

// denies reports whether a denial is known and still holds.
func (a *lastResult) denies(now instant) bool {
	return a.cost > 0 && now < a.trusted && (a.never || now < a.denied)
}

// evaluate fills in the result that the store would return for a charge, if it is known.
func (a *lastResult) evaluate(c *headgate.Charge, r *headgate.Result, now instant) verdict {
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
	a.repeats++
	return denied
}

// update records what a result says about the counter, unless it arrived after a result that the store decided later. A result
// that is much older means that the store's clock was set back.
func (a *lastResult) update(r *headgate.Result, now instant) {
	decided := r.Time.UnixMicro()
	if early := a.decided - decided; early <= 0 || early > maxTrust.Microseconds() {
		a.decided, a.remaining, a.reset = decided, r.Remaining, now+r.ResetAfter
	}
}

// observe records a result, and reports whether it is a denial for lack of units. shared means that other nodes may hold
// leases.
func (a *lastResult) observe(c *headgate.Charge, r *headgate.Result, isCacheable, shared bool, sent, now instant) bool {
	a.clock = r.Time.UnixMicro() - sent.Microseconds()
	a.update(r, now)
	if c.OnStoreFailure == headgate.FailLocal && !c.Observe {
		a.fallbackUntil = now + max(r.UnusedAfter, r.ResetAfter)
	}
	if c.Cost == 0 && ordinary(c) {
		return false // a peek changes nothing
	}
	before := *a
	a.cost, a.trust, a.repeats = 0, 0, 0
	// A denial with enough units has another reason: another charge on the counter, or too many holds.
	if !isCacheable || r.Remaining >= c.Cost && !r.Allowed {
		return false
	}
	a.denied, a.retry, a.never, a.trusted = 0, 0, false, sent+maxTrust
	if r.Allowed {
		if r.Remaining >= c.Cost {
			a.cost = c.Cost
		} else if wait := untilNextFits(c, r); wait > 0 && !shared {
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

// untilNextFits returns how long the same charge does not fit after one that took the last units of a token bucket, even if
// holds are released in the store; 0 if that is not known. It saves the call that would learn it: with two nodes and ten
// requests per refilled unit, Redis decides two requests per unit instead of three.
func untilNextFits(c *headgate.Charge, r *headgate.Result) time.Duration {
	if c.Limit.Algorithm != headgate.TokenBucket || r.Granted != c.Cost {
		return 0
	}
	const scale = 1_000_000 // a receipt has the bucket's level in millionths of a unit, and its time
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

// deny makes the denial hold until wait has passed.
func (a *lastResult) deny(now instant, wait time.Duration) { a.denied, a.retry = now+wait, now+wait }

// falseDenials returns the maximum number of requests that the cache denied although the store had units for them, given that
// the store has now granted one: units were given back earlier than the limit alone would have.
func (a *lastResult) falseDenials(c *headgate.Charge, r *headgate.Result, now instant) int64 {
	if a.repeats == 0 || r.Granted == 0 || a.cost == 0 || now >= a.denied && !a.never || !ordinary(c) {
		return 0
	}
	return min(a.repeats, (r.Granted+r.Remaining)/max(1, c.Cost))
}
