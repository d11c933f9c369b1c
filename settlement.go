package headgate

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// lateMargin is how long before the end of its hold a settlement counts as late: the clock difference that is tolerated.
const lateMargin = 1 // second

// markedFor returns how long a token must be marked as settled so that a second settlement of the part is not recorded again, or 0 if
// that is not needed. The counter itself ensures that a hold is released once until it expires. It cannot do so for units that were
// recorded at once or not by the store, nor for a hold that has expired, which the counter no longer has.
func (p *reserved) markedFor(now int64) time.Duration {
	switch {
	case p.RefundBefore > 0:
		return MaxHold // a later settlement gives nothing back
	case !p.Held || p.Receipt.Units == 0 || p.Receipt.Local || p.Receipt.Time <= (now+lateMargin)*1_000_000:
		return max(MaxHold, p.Limit.Window) // as long as recorded units may count
	}
	return 0
}

// reservationEnd is the charges that settle a reservation.
type reservationEnd struct {
	parts   []reserved
	charges []Charge // in the order of parts
	claim   claim
	// unknown is why the claim is unknown; withheld is whether units are not given back because of that.
	unknown  error
	withheld bool
}

// newSettlement returns the charges that end a reservation at the cost of each part. It marks the token if needed: as extended, or as
// settled.
func (l *Limiter) newSettlement(ctx context.Context, token []byte, parts []reserved, extends bool, cost func(*reserved) int64) reservationEnd {
	s := reservationEnd{parts: parts}
	s.claim, s.unknown = l.claim(ctx, token, parts, extends)
	s.charges, s.withheld = settlement(parts, cost, s.claim, l.exceptions.now())
	return s
}

// decision returns the decision on the charges of the settlement, and the error of Commit.
func (s *reservationEnd) decision(set *RuleSet, results []Result, err error) (Decision, error) {
	switch {
	case s.claim == claimedBefore:
		err = nil // there was nothing to charge
	case err == nil && s.withheld:
		err = s.unknown
	}
	d := Decision{Allowed: true, Path: pathOf(results), Version: set.version, Limits: make([]LimitDecision, len(s.parts))}
	for i := range s.parts {
		p := &s.parts[i]
		d.Limits[i] = LimitDecision{
			Rule: p.Rule, Name: p.Name, Limit: p.Limit, Origin: p.Origin, Subject: p.Subject, Counter: p.Counter,
			Cost: s.charges[i].Cost, Enforced: !p.Observe, Exposed: p.Exposed, Result: results[i],
		}
		if p.Whole.Count > 0 {
			d.Limits[i].Limit, d.Limits[i].Shared, d.Limits[i].Share = p.Whole, true, shareUnits(&p.Limit)
		}
		if s.charges[i].refunds() {
			d.Limits[i].Cost = -s.charges[i].Cost
		}
		if n, ok := set.byID[p.Rule]; ok {
			rule := &set.rules[n]
			repeated := slices.ContainsFunc(s.parts[:i], func(o reserved) bool { return o.Rule == p.Rule && o.Name == p.Name && o.Origin != FromCandidate })
			d.Limits[i].Metered = rule.Meter && p.Origin != FromCandidate && rule.limits[0].name == p.Name && !repeated
		}
		if results[i].Time.After(d.Time) {
			d.Time = results[i].Time
		}
	}
	return d, err
}

// endedBefore reports whether the results show that a hold was released before: the counter recorded nothing.
func (s *reservationEnd) endedBefore(results []Result) bool {
	for i := range s.charges {
		if c := &s.charges[i]; c.releases() && c.Cost > 0 && results[i].Err == nil && results[i].Granted == 0 {
			return true
		}
	}
	return false
}

// claim is what is known about earlier uses of a token.
type claim uint8

const (
	// claimedFirst means that the token was neither settled nor extended.
	claimedFirst claim = iota
	// claimedBefore means that it was settled or, for an extension, extended.
	claimedBefore
	// claimedReplaced means that the token was extended, and that it is settled now: the caller did not get the new token. What the
	// token had reserved is gone, as far as it was recorded.
	claimedReplaced
	// claimUnknown means that the store is unavailable.
	claimUnknown
)

// The units of a marker: a token is extended once and settled once, in this order.
const (
	markExtended = 2
	markSettled  = 3
)

// claim marks a token as extended or settled if one of its parts needs it. The error is not nil if the claim is unknown.
func (l *Limiter) claim(ctx context.Context, token []byte, parts []reserved, extends bool) (claim, error) {
	now, span := l.exceptions.now(), time.Duration(0)
	for i := range parts {
		span = max(span, parts[i].markedFor(now))
	}
	if span == 0 {
		return claimedFirst, nil
	}
	sum := hashParts("settled", string(token[len(token)-tokenMAC:]))
	marker := Charge{
		Subject: Subject(sum[:16]), Counter: CounterOf("reservation", "settled", FixedWindow),
		Limit: Limit{Algorithm: FixedWindow, Count: markSettled, Window: span}, Cost: markSettled,
		// Only the store may decide it. If the store is unavailable, it is recorded later, for later settlements.
		Strict: true, OnStoreFailure: FailAllow,
	}
	if extends {
		marker.Cost = markExtended
	}
	var result [1]Result
	err := take(ctx, l.store, []Charge{marker}, result[:])
	replaced := err == nil && !extends && !result[0].Allowed && result[0].Remaining == markSettled-markExtended
	if replaced {
		marker.Cost = markSettled - markExtended
		err = take(ctx, l.store, []Charge{marker}, result[:])
	}
	switch {
	case err != nil:
		return claimUnknown, fmt.Errorf("cannot determine whether the reservation was settled before: %w", err)
	case !result[0].Allowed:
		return claimedBefore, nil
	case replaced:
		return claimedReplaced, nil
	}
	return claimedFirst, nil
}

// settlement returns the charges that end a reservation. If it was settled before, they charge nothing. If that is unknown, they
// give nothing back, and withheld reports whether there was something to give back.
func settlement(parts []reserved, cost func(*reserved) int64, claim claim, now int64) (charges []Charge, withheld bool) {
	charges = make([]Charge, len(parts))
	for i := range parts {
		p := &parts[i]
		nothing := p.charge()
		nothing.Force = true
		c := p.settle(cost(p))
		switch late := p.RefundBefore > 0 && p.RefundBefore <= now*1_000_000; {
		case claim == claimedBefore, c.refunds() && late:
			c = nothing
		case claim == claimUnknown && c.refunds():
			c, withheld = nothing, true
		case claim == claimedReplaced && !p.Held:
			c = nothing
			c.Cost = cost(p) // the extension may have charged a part of it: the count errs on the safe side
		}
		charges[i] = c
	}
	return charges, withheld
}

// actualCost returns the actual cost of a request by a limit's rule, or by the rule at the time of Reserve if it was removed, without
// what an extended reservation has settled before. If several rules charge the limit, it is the highest of their costs.
func (l *Limiter) actualCost(p *reserved, actual *Request) int64 {
	units := p.Units
	if len(units) == 0 {
		units = []reservedUnit{{p.Rule, p.Unit}}
	}
	set := l.rules.Load()
	highest := int64(0)
	for _, u := range units {
		unit := Cost{Default: u.Unit}
		if n, ok := set.byID[u.Rule]; ok {
			rule := &set.rules[n]
			unit.From, unit.Min, unit.Max = rule.Cost.From, rule.Cost.Min, rule.Cost.Max
		}
		highest = max(highest, min(unit.of(actual, unit.base())-p.Settled, max(maxCommitRatio*p.Cost, p.Cost+p.Limit.Capacity(), unit.Max)))
	}
	return highest
}

// maxCommitRatio is how many times its reserved cost a commit may charge.
const maxCommitRatio = 10

// settle returns the charge that ends one part of a reservation at its actual cost.
func (p *reserved) settle(cost int64) Charge {
	c := p.charge()
	switch units := p.Receipt.Units; {
	case p.Held && units > 0:
		c.Release, c.Cost = p.Receipt, cost
	case units == 0: // the store was unavailable
		c.Force, c.Cost = true, cost
	case cost >= units:
		c.Force, c.Cost = true, cost-units
	default:
		c.Refund, c.Cost = p.Receipt, units-cost
	}
	return c
}

// charge returns a charge on the counter of the part.
func (p *reserved) charge() Charge {
	c := Charge{Subject: p.Subject, Counter: p.Counter, Limit: p.Limit}
	if p.Home {
		c.Regions = HomeRegion
	}
	return c
}
