package region

import (
	"math"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

const (
	// sampleEvery is the shortest time over which the rate of a counter is measured, and smoothing the time constant of its mean.
	sampleEvery = 50 * time.Millisecond
	smoothing   = time.Second
	// Units are borrowed in advance for minHorizon, or one part in horizonPart of a longer fixed window, but not for longer than the window
	// lasts or a bucket needs to refill half of its units.
	minHorizon  = 3 * time.Second
	maxHorizon  = 10 * time.Second
	horizonPart = 10
	// margin is how much more is borrowed than the rate requires.
	margin = 1.2
	// smallShare is the share up to which units are borrowed when a quarter of them is left, because a rate says little about so few. If
	// the rate is not known yet, the same holds for larger shares.
	smallShare = 40
	// unsampledPart is the part of the share, one in so many, that is borrowed if the rate is not known.
	unsampledPart = 8
)

// account is what this node knows about the use of one counter.
type account struct {
	mu        sync.Mutex
	sampled   int64         // the store's time of the last sample, in microseconds; 0 if there is none
	units     int64         // requested on this node since
	rate      float64       // units per second that are requested in this region
	borrowing bool          // the counter is being read, to borrow units
	nextLoan  time.Duration // nothing is borrowed before
	lowSince  time.Duration // 0 if the counter is not low
	backoff   time.Duration
	window    int64           // the window that lenders is about
	lenders   []lenderAccount // by member; nil if unknown
	others    othersSpare
}

// lenderAccount is what a region expects of another one.
type lenderAccount struct {
	spare   int64         // units that it may lend
	at      time.Duration // when it said so
	pending int64         // units of the loan request in flight
}

// expected returns how many units the region may lend when a request arrives: those of a bucket refill, and those of a sliding window come
// back. It said how many it had half a round trip before its response arrived.
func (l *lenderAccount) expected(k *headgate.Charge, now, rtt time.Duration) int64 {
	if k.Limit.Algorithm == headgate.FixedWindow {
		return l.spare
	}
	refilled := float64(now+rtt-l.at) * float64(k.Limit.Count) / float64(k.Limit.Window)
	return int64(min(float64(l.spare)+refilled, float64(k.Limit.Capacity())))
}

// pending returns the units of all loan requests in flight.
func (a *account) pending() (units int64) {
	for i := range a.lenders {
		units += a.lenders[i].pending
	}
	return units
}

// reading is what a result says about a share.
type reading struct {
	capacity, remaining, used int64
	denied                    bool
	nodes                     int32         // in this region
	at                        int64         // the store's time, in microseconds
	start, end                int64         // of the window, in microseconds; 0 for a bucket
	rest                      time.Duration // until the window ends; 0 for a bucket
	fixed                     time.Duration // the length of a fixed window, in which no units come back; 0 for others
	refill                    time.Duration // how long a bucket takes to refill; 0 for a window
}

// read returns what the result of a charge says.
func read(c *headgate.Charge, r *headgate.Result) reading {
	capacity := c.Limit.Capacity()
	g := reading{capacity: capacity, remaining: r.Remaining, used: capacity - r.Remaining, denied: !r.Allowed, nodes: r.Nodes, at: r.Time.UnixMicro()}
	if c.Limit.Algorithm == headgate.TokenBucket {
		g.refill = refillTime(&c.Limit)
		return g
	}
	g.start, g.end = windowOf(c, r.Time)
	g.rest = time.Duration(g.end-g.at) * time.Microsecond
	if c.Limit.Algorithm == headgate.FixedWindow {
		g.fixed = time.Duration(g.end-g.start) * time.Microsecond
	}
	return g
}

// horizon returns for how long units are borrowed in advance.
func (g *reading) horizon() time.Duration {
	if g.refill > 0 {
		return min(minHorizon, g.refill/2)
	}
	return min(max(minHorizon, min(g.fixed/horizonPart, maxHorizon)), g.rest)
}

// sample counts units that were requested on this node, one of several in the region. While units lack, most requests are denied before
// they get here, so that the rate does not fall.
func (a *account) sample(g *reading, units int64) {
	elapsed := time.Duration(g.at-a.sampled) * time.Microsecond
	if a.sampled == 0 || elapsed < 0 {
		a.sampled, a.units = g.at, 0
		return
	}
	a.units += units
	if elapsed < sampleEvery {
		return
	}
	rate := float64(a.units) / elapsed.Seconds() * float64(max(1, g.nodes))
	if g.denied {
		rate = max(rate, a.rate)
	}
	if a.rate == 0 {
		a.rate = rate
	} else {
		a.rate += (rate - a.rate) * float64(elapsed) / float64(elapsed+smoothing)
	}
	a.sampled, a.units = g.at, 0
}

// net returns the units per second that are requested and that do not refill.
func (a *account) net(g *reading) float64 {
	if g.refill > 0 {
		return max(0, a.rate-float64(g.capacity)/g.refill.Seconds())
	}
	return a.rate
}

// low reports whether units may run out before borrowed ones arrive, given the round trip to a peer.
func (a *account) low(g *reading, rtt time.Duration) bool {
	horizon := g.horizon()
	switch {
	case g.refill == 0 && g.rest < rtt*3/2:
		return false // they would arrive in the next window
	case g.denied:
		return g.used > 0
	case (g.capacity <= smallShare || a.rate == 0) && 4*g.remaining <= g.capacity:
		return true
	case g.refill > 0:
		return a.net(g) > 0 && 4*g.used >= g.capacity
	}
	return float64(g.remaining) < a.rate*(rtt*3/2+horizon/2).Seconds()
}

// want returns how many units to borrow, in addition to those of requests in flight: what will be used within the horizon, at most as many as
// can be credited when they arrive.
func (a *account) want(g *reading, cost int64, rtt time.Duration) int64 {
	net := a.net(g)
	want := int64(math.Ceil(min(margin*net*(g.horizon()+rtt).Seconds(), headgate.MaxCost))) - g.remaining
	if g.denied {
		want = max(want, cost-g.remaining)
	}
	if a.rate == 0 {
		want = max(want, g.capacity/unsampledPart)
	}
	return min(want, g.used) - a.pending()
}
