package storewrap

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// fallback decides what the store did not, by this node's share of each limit, and charges the store afterwards.
type fallback struct {
	transport  *transport
	cache      *cache
	fleet      *fleet
	background *background
	ledger     ledger
	salt       uint64
	percent    int64

	charged, overLimit atomic.Int64 // units
}

func newFallback(t *transport, c *cache, f *fleet, percent int, b *background) *fallback {
	return &fallback{
		transport: t, cache: c, fleet: f, background: b, ledger: ledger{max: maxTallies},
		salt: rand.Uint64(), percent: int64(percent), //nolint:gosec // it tells nodes apart
	}
}

// retryUnavailable is the wait of a charge that is larger than this node's share: it may fit once the store has recovered.
const retryUnavailable = time.Second

// decide fills in the results that the store did not, for charges whose rule says so. It notes what else is recorded meanwhile, so
// that the store can be charged with it. The error is that of what is still undecided.
func (f *fallback) decide(now time.Time, charges []headgate.Charge, results []headgate.Result) error {
	denied, failClosed := false, false
	var shared []int
	for i := range charges {
		c, r := &charges[i], &results[i]
		switch {
		case r.Err == nil:
			denied = denied || !r.Allowed && !c.Observe
		case !ordinary(c):
		case c.OnStoreFailure == headgate.FailLocal:
			shared = append(shared, i)
		case c.OnStoreFailure == headgate.FailDeny && !c.Observe:
			failClosed = true // the limiter denies it
		}
	}
	if len(shared) > 0 && f.decideShared(now, charges, results, shared, denied || failClosed) && !denied {
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

// decideShared decides some of the charges by this node's share, all of them or none, and none if the request is denied already.
// It reports whether they deny it.
func (f *fallback) decideShared(now time.Time, charges []headgate.Charge, results []headgate.Result, shared []int, denied bool) bool {
	asked, late := make([]headgate.Charge, len(shared)), make([]bool, len(shared))
	for i, at := range shared {
		asked[i], late[i] = charges[at], unanswered(results[at].Err)
	}
	deny := false
	for i, r := range f.count(now, asked, late, denied) {
		results[shared[i]] = r
		deny = deny || !r.Allowed && !charges[shared[i]].Observe
	}
	return deny
}

// record notes charges that the store was not asked for and that count all the same: those of rules that allow, if the request
// is allowed, and forced ones and the ends of holds in any case.
func (f *fallback) record(now time.Time, charges []headgate.Charge, results []headgate.Result, denied bool) {
	for i := range charges {
		c, r := charges[i], &results[i]
		if r.Err == nil || c.Cost <= 0 || unanswered(r.Err) {
			continue
		}
		allows := ordinary(&c) && c.OnStoreFailure == headgate.FailAllow && !c.Observe && c.Hold == 0 && !denied
		forced := c.Force || c.Release.Units > 0
		if !allows && !forced {
			continue
		}
		c.Force, c.Release, c.Cost = true, headgate.Receipt{}, min(c.Cost, headgate.MaxCost)
		said := f.count(now, []headgate.Charge{c}, []bool{false}, false)[0]
		if forced {
			*r = said
		}
	}
}

// count counts charges by this node's share. Those that are late may have been charged to the store, and are not charged to it
// again.
func (f *fallback) count(now time.Time, charges []headgate.Charge, late []bool, denied bool) []headgate.Result {
	own := f.share()
	results, states := make([]headgate.Result, len(charges)), make([]headgate.State, len(charges))
	tallies, none := make([]*tally, len(charges)), make([]time.Duration, len(charges))
	whole := make([]int64, len(charges)) // capacity of the limit
	l := &f.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		scaled, wait, ok := own.of(c, now)
		t, created := l.getOrCreate(c, now)
		remaining, lasts, heard := f.cache.lastKnown(c)
		if created || heard || t.share.Algorithm != scaled.Algorithm {
			t.restart(c.Limit, scaled, own.seed(c, scaled, remaining, lasts), now)
		}
		whole[i] = c.Limit.Capacity()
		t.whole, t.share = c.Limit, scaled
		c.Limit = scaled
		if !ok && !c.Force {
			none[i], c.Cost = wait, 0
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
		if slices.Index(tallies, t) == i { // the first charge on a counter has its state
			t.counted = states[i]
		}
		l.holds.Keep(c, r)
		if none[i] > 0 {
			*r = headgate.Result{RetryAfter: none[i], ResetAfter: none[i], Time: now}
		}
		if r.RetryAfter == headgate.Never && c.Cost <= whole[i] {
			r.RetryAfter = retryUnavailable
		}
		r.Path, r.Nodes, r.Receipt.Local = headgate.PathLocal, int32(own.nodes), r.Receipt.Units > 0
		switch {
		case r.Granted == 0 || c.Holds():
		case late[i]:
			forced := t.charge()
			forced.Force, forced.Cost = true, r.Granted
			t.charged, _ = t.share.Take(t.charged, forced, now)
		default:
			l.setOwes(t, true)
			if f.onAvailableShard(t) {
				f.settleSoon()
			}
		}
	}
	return results
}

// share returns this node's, by what the store last said of the fleet.
func (f *fallback) share() share {
	m := f.fleet.members.Load()
	return share{nodes: m.nodes, rank: m.rank, salt: f.salt, percent: f.percent}
}

// settle ends what this node has granted or held on its own, as far as its own count goes.
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

// undo gives back what the store has granted to a request that this node's share denies.
func (f *fallback) undo(now time.Time, charges []headgate.Charge, results []headgate.Result) {
	var back []headgate.Charge
	for i := range results {
		r := &results[i]
		if r.Err != nil || r.Path == headgate.PathLocal {
			continue
		}
		if undo, ok := charges[i].Undo(r); ok {
			back = append(back, undo)
			r.Granted, r.Receipt = 0, headgate.Receipt{}
		}
	}
	if len(back) > 0 {
		_ = f.transport.bounded.take(now, back, make([]headgate.Result, len(back))) // what is lost is on the safe side
	}
}
