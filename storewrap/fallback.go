package storewrap

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// fallback decides charges that the store did not, by this node's share of each limit, and charges the store afterwards.
type fallback struct {
	transport  *transport
	cache      *cache
	fleet      *fleet
	background *background
	ledger     ledger
	salt       uint64
	percent    int64 // of its share that this node admits
	// regionShare is Options.RegionShare.
	regionShare func(headgate.Subject, *headgate.Limit) headgate.Limit

	charged, overLimit atomic.Int64 // units
}

func newFallback(t *transport, c *cache, f *fleet, o *Options, b *background) *fallback {
	return &fallback{
		transport: t, cache: c, fleet: f, background: b, ledger: ledger{max: maxTallies},
		salt: rand.Uint64(), percent: int64(o.LocalShare), regionShare: o.RegionShare, //nolint:gosec // it distinguishes nodes, and is not a secret
	}
}

// retryUnavailable is the retry-after of a charge that is larger than this node's share: it may fit once the store has
// recovered.
const retryUnavailable = time.Second

// decide fills in the results of charges that the store did not decide, if their rule has on_store_failure: local. It also
// records other charges that count while the store is unavailable, so that the store can be charged with them later. It
// returns an error if a charge is still undecided.
func (f *fallback) decide(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	denied, failClosed := false, false
	localDenied := false // by this node's share
	var indexes []int
	for i := range charges {
		c, r := &charges[i], &results[i]
		switch {
		case r.Err == nil:
			denied = denied || !r.Allowed && !c.Observe
		case concurrent(c):
			localDenied = f.decideSlots(now, c, r) || localDenied
		case !ordinary(c):
		case c.OnStoreFailure == headgate.FailLocal:
			indexes = append(indexes, i)
		case c.OnStoreFailure == headgate.FailDeny && !c.Observe:
			failClosed = true // the limiter denies it
		}
	}
	if len(indexes) > 0 {
		localDenied = f.decideLocally(now, charges, results, indexes, denied || failClosed || localDenied) || localDenied
	}
	if localDenied && !denied {
		f.undo(now, charges, results)
		denied = true
	}
	f.record(now, charges, results, denied || failClosed)
	for i := range results {
		if results[i].Err != nil {
			return results[i].Err
		}
	}
	return nil
}

// decideLocally decides the charges at indexes by this node's share, all of them or none, and none if the request is denied
// already. It reports whether they deny the request.
func (f *fallback) decideLocally(now time.Time, charges []headgate.Charge, results []headgate.Result, indexes []int, denied bool) bool {
	local, lateCharges := make([]headgate.Charge, len(indexes)), make([]bool, len(indexes))
	for i, at := range indexes {
		local[i], lateCharges[i] = charges[at], unanswered(results[at].Err)
	}
	deny := false
	for i, r := range f.count(now, local, lateCharges, denied) {
		results[indexes[i]] = r
		deny = deny || !r.Allowed && !charges[indexes[i]].Observe
	}
	return deny
}

// decideSlots decides whether a request may acquire units of a concurrency limit, by this node's share and what its requests have in use,
// which they know themselves: nothing is counted here. It reports whether that denies the request.
func (f *fallback) decideSlots(now time.Time, c *headgate.Charge, r *headgate.Result) bool {
	if c.OnStoreFailure != headgate.FailLocal || c.Slots != headgate.AcquireSlots || c.Force || c.Cost <= 0 {
		return false
	}
	s := f.share()
	left := s.portion(c, 0, c.Limit.Count) - c.InUse
	*r = headgate.Result{RetryAfter: headgate.Unknown, Remaining: max(0, left), Time: now, Path: headgate.PathLocal, Nodes: int32(s.nodes)}
	if left < c.Cost {
		return !c.Observe
	}
	r.Allowed, r.Granted, r.Remaining, r.RetryAfter = true, c.Cost, left-c.Cost, 0
	return false
}

// record counts charges that the store did not receive and that count nevertheless: those of rules with on_store_failure:
// allow, if the request is allowed, and in any case forced charges and releases of holds.
func (f *fallback) record(now time.Time, charges []headgate.Charge, results []headgate.Result, denied bool) {
	for i := range charges {
		c, r := charges[i], &results[i]
		if r.Err == nil || c.Cost <= 0 || unanswered(r.Err) || concurrent(&c) {
			continue
		}
		allows := ordinary(&c) && c.OnStoreFailure == headgate.FailAllow && !c.Observe && c.Hold == 0 && !denied
		forced := c.Force || c.Release.Units > 0
		if !allows && !forced {
			continue
		}
		c.Force, c.Release, c.Cost = true, headgate.Receipt{}, min(c.Cost, headgate.MaxCost)
		result := f.count(now, []headgate.Charge{c}, []bool{false}, false)[0]
		if forced {
			*r = result
		}
	}
}

// count decides charges by this node's share. The store may have recorded the charges in lateCharges, so it is not charged
// with them again.
func (f *fallback) count(now time.Time, charges []headgate.Charge, lateCharges []bool, denied bool) []headgate.Result {
	nodeShare := f.share()
	results, states := make([]headgate.Result, len(charges)), make([]headgate.State, len(charges))
	tallies, noShare := make([]*tally, len(charges)), make([]time.Duration, len(charges))
	capacities := make([]int64, len(charges)) // of the whole limits
	l := &f.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		part, some := f.regional(c)
		scaled, wait, ok := nodeShare.scale(&part, now)
		if !some {
			wait, ok = retryUnavailable, false
		}
		t, created := l.getOrCreate(c, now)
		remaining, lasts, known := f.cache.lastKnown(c)
		if created || known || t.share.Algorithm != scaled.Algorithm {
			if part.Limit != c.Limit {
				remaining = remaining * part.Limit.Capacity() / c.Limit.Capacity()
			}
			t.restart(c.Limit, scaled, nodeShare.seed(&part, scaled, remaining, lasts), now)
		}
		capacities[i] = c.Limit.Capacity()
		t.limit, t.share = c.Limit, scaled
		c.Limit = scaled
		if !ok && !c.Force {
			noShare[i], c.Cost = wait, 0
			denied = denied || !c.Observe
		}
		tallies[i], states[i], t.settled = t, t.counted, false
		states[i].Hold = l.holds.Load(c)
	}
	if denied {
		headgate.DecideDenied(charges, states, results, now)
	} else {
		headgate.Decide(charges, states, results, now)
	}
	for i := range charges {
		c, t, r := &charges[i], tallies[i], &results[i]
		if slices.Index(tallies, t) == i { // the state is at the first charge on a counter
			t.counted = states[i]
		}
		l.holds.Keep(c, r)
		if noShare[i] > 0 {
			*r = headgate.Result{RetryAfter: noShare[i], ResetAfter: noShare[i], Time: now}
		}
		if r.RetryAfter == headgate.Never && c.Cost <= capacities[i] {
			r.RetryAfter = retryUnavailable
		}
		r.Path, r.Nodes, r.Receipt.Local = headgate.PathLocal, int32(nodeShare.nodes), r.Receipt.Units > 0
		switch {
		case r.Granted == 0 || c.Holds():
		case lateCharges[i]:
			forced := t.charge()
			forced.Force, forced.Cost = true, r.Granted
			t.charged, _ = t.share.Take(t.charged, forced, now)
		default:
			l.setOwes(t, true)
			if f.onAvailableShard(t) {
				f.scheduleSettlement()
			}
		}
	}
	return results
}

// regional returns the charge with the part of its limit that the nodes of this region share. ok is false if the region has no units.
func (f *fallback) regional(c *headgate.Charge) (part headgate.Charge, ok bool) {
	part = *c
	if c.Regions != headgate.HomeRegion || f.regionShare == nil {
		return part, true
	}
	share := f.regionShare(c.Subject, &c.Limit)
	if share.Count == 0 {
		return part, false
	}
	share.Align = c.Limit.Align // the store's count continues in the same windows
	part.Limit = share
	return part, true
}

// share returns this node's share of all limits, by the fleet size that the store last reported.
func (f *fallback) share() share {
	m := f.fleet.members.Load()
	return share{nodes: m.nodes, rank: m.rank, salt: f.salt, percent: f.percent}
}

// settle refunds or releases units that this node granted or held locally, in the ledger.
func (f *fallback) settle(now time.Time, c headgate.Charge) headgate.Result {
	l := &f.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Release.Local {
		c.Cost = 0
	}
	r := headgate.Result{Allowed: true, Time: now}
	if t := l.index[counterKey{c.Subject, c.Counter}]; t != nil {
		c.Limit = t.share
		t.counted.Hold = l.holds.Load(&c)
		t.counted, r = t.share.Take(t.counted, c, now)
		l.holds.Keep(&c, &r)
	}
	r.Path = headgate.PathLocal
	return r
}

// undo refunds what the store has granted to a request that this node's share denies.
func (f *fallback) undo(now time.Time, charges []headgate.Charge, results []headgate.Result) {
	var refunds []headgate.Charge
	for i := range results {
		r := &results[i]
		if r.Err != nil || r.Path == headgate.PathLocal {
			continue
		}
		if undo, ok := charges[i].Undo(r); ok {
			refunds = append(refunds, undo)
			r.Granted, r.Receipt = 0, headgate.Receipt{}
		}
	}
	if len(refunds) > 0 {
		_ = f.transport.bounded.take(now, refunds, make([]headgate.Result, len(refunds))) // a lost refund only makes the limit stricter
	}
}
