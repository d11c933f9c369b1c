package region

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// lender lends units of this region to others.
type lender struct {
	store  headgate.Store
	shares *Shares
	stats  *stats
}

// lend answers a loan request. It charges this region's counter before it answers; a charge that the store does not answer lends nothing, and is
// neither repeated nor refunded.
func (l *lender) lend(ctx context.Context, req *LoanRequest, lost lossFunc) Loan {
	loan := l.decide(ctx, req, lost)
	if loan.Units == 0 {
		l.stats.rejected[loan.Rejection].Add(1)
	}
	l.stats.lent.Add(loan.Units)
	return loan
}

func (l *lender) decide(ctx context.Context, req *LoanRequest, lost lossFunc) Loan {
	if req.Epoch != l.shares.epoch {
		return Loan{Rejection: OtherMembers}
	}
	if !lendable(&req.Whole) || req.Whole.Validate() != nil || req.Units <= 0 || req.Units > headgate.MaxCost {
		return Loan{Rejection: Unlendable}
	}
	if l.shares.fresh(ctx) != nil {
		return Loan{Rejection: StoreUnavailable}
	}
	c := headgate.Charge{Subject: req.Subject, Counter: req.Counter, Limit: l.shares.Share(req.Subject, &req.Whole), Observe: true}
	if c.Limit.Count == 0 {
		return Loan{Rejection: NoUnits}
	}
	c.Absent = lost.absent(&c)
	permit, lent := permitCharge(&c), lentCharge(&c)
	permit.Observe = true
	var results [3]headgate.Result
	own, permitted, earlier := &results[0], &results[1], &results[2]
	if l.store.Take(ctx, []headgate.Charge{c, permit, lent}, results[:]) != nil {
		return Loan{Rejection: StoreUnavailable}
	}
	g := read(&c, own)
	if g.start != req.Window {
		return Loan{Rejection: OtherWindow}
	}
	if !permitted.Allowed {
		return Loan{Rejection: Borrowing}
	}
	spare := g.remaining - keep(&g, lent.Limit.Count-earlier.Remaining)
	if spare <= 0 {
		return Loan{Rejection: NoUnits}
	}
	c.Cost, c.AtLeast = min(req.Units, spare), 1
	lent.Cost = c.Cost
	if l.store.Take(ctx, []headgate.Charge{c, lent}, results[:2]) != nil {
		l.stats.lost.Add(c.Cost)
		return Loan{Rejection: StoreUnavailable}
	}
	if start, _ := windowOf(&c, own.Time); start != req.Window && own.Granted > 0 {
		l.stats.lost.Add(own.Granted) // the window has just ended
		return Loan{Rejection: OtherWindow}
	}
	if own.Granted == 0 {
		return Loan{Rejection: NoUnits}
	}
	return Loan{Units: own.Granted, Left: max(0, spare-own.Granted)}
}

// lentCharge returns a charge on the counter of the units that were lent, in the same windows. It is not part of the protocol.
func lentCharge(c *headgate.Charge) headgate.Charge {
	algorithm := c.Limit.Algorithm
	lent := headgate.Charge{Subject: c.Subject, Counter: headgate.CounterOf("region lent", c.Counter.String(), algorithm), Limit: c.Limit, Observe: true}
	lent.Limit.Count, lent.Limit.Burst = headgate.MaxCost, 0
	if algorithm == headgate.TokenBucket {
		lent.Limit.Window = time.Second
	}
	return lent
}

const (
	// keepFor is how much of its own use a region keeps when it lends.
	keepFor = time.Second
	// keepPart is the part of its share, one in so many, that a region keeps of a fixed window in case requests move there, except in the last
	// part of the window, one in keepUntil.
	keepPart  = 16
	keepUntil = 4
)

// keep returns how many units this region may soon use itself, given how many of the used ones it has lent.
func keep(g *reading, lent int64) int64 {
	if g.refill > 0 {
		perSecond := float64(g.capacity) / g.refill.Seconds()
		return min(int64(perSecond/2)+1, g.capacity/4)
	}
	window := g.end - g.start
	elapsed := max(g.at-g.start, window/100, 1)
	if g.fixed == 0 {
		elapsed += window // of a sliding window, the previous one counts as well
	}
	units := int64(float64(max(0, g.used-lent)) * float64(min(g.rest, keepFor).Microseconds()) / float64(elapsed))
	if g.fixed > 0 && keepUntil*(g.end-g.at) > window {
		units = max(units, g.capacity/keepPart)
	}
	return units
}
