package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// DefaultHold is how long a reservation is held if Reserve is called with a hold of 0.
const DefaultHold = time.Minute

// Errors of invalid requests.
var (
	// ErrUnknownRule means that no rule has the ID in Request.Rule.
	ErrUnknownRule = errors.New("rule not found")
	// ErrInvalidToken means that a token was not made by Reserve or Extend with the same secret, or that a token to extend was
	// committed, cancelled or extended before.
	ErrInvalidToken = errors.New("invalid reservation token")

	errEnded = fmt.Errorf("%w: it was committed, cancelled or extended before", ErrInvalidToken)
)

// Reservation is the result of Limiter.Reserve and Limiter.Extend.
type Reservation struct {
	Decision Decision
	// Token identifies the reservation in Commit, Cancel and Extend, on any node with the same secret. It is nil if there is nothing
	// to commit: the request was denied, or no limit applies.
	Token []byte
	// Covered is the total cost of the request, in the caller's number (Request.Cost, or the attribute that rules read the cost from),
	// that is reserved: call Extend before the actual cost exceeds it. It is MaxCost if no limit applies.
	Covered int64
}

// Reserve decides a request whose cost is known only after it was served, such as the tokens of a language model. It holds the
// expected cost until Commit or Cancel, or until hold has passed; 0 means DefaultHold. Held units are unavailable to other
// requests, so that requests in flight cannot spend the same units. Rule.OnHoldExpiry determines what happens to them when the
// hold expires; by default they become available again.
//
// The token is signed with a key derived from Options.Secret, or else with the store's key. With neither, or if the store is
// unavailable before this node has fetched the store's key, nothing is reserved or charged and the error wraps ErrUnavailable.
//
// Leaky buckets and sliding logs cannot hold units: they are charged at once, and Commit and Cancel correct the charge.
func (l *Limiter) Reserve(ctx context.Context, req Request, hold time.Duration) (r Reservation, err error) {
	r.Decision, err = l.evaluate(ctx, CallReserve, req, slotsSkipped, func(ev *evaluation, ctx context.Context, _ Store) (Decision, error) {
		r, err = l.reserve(ctx, ev, &req, hold)
		return r.Decision, err
	})
	return r, err
}

// reserve decides an evaluation's charges as holds and seals them in a token.
func (l *Limiter) reserve(ctx context.Context, ev *evaluation, req *Request, hold time.Duration) (r Reservation, err error) {
	keys, err := l.reservationKeys(ctx, hold)
	if err != nil {
		return r, err
	}
	ev.hold(req, hold)
	if r.Decision = ev.decide(ctx, l.store); !r.Decision.Allowed {
		return r, nil
	}
	parts := ev.reserved(hold)
	if r.Token, err = sealBounded(keys[0], parts); err != nil {
		charges, _ := settlement(parts, func(*reserved) int64 { return 0 }, claimedFirst, 0)
		_ = take(ctx, l.store, charges, make([]Result, len(charges))) // if it fails, the holds expire
		return Reservation{}, err
	}
	r.Covered = ev.covered()
	return r, nil
}

// reservationKeys checks the length of a hold and returns the keys that tokens are signed with.
func (l *Limiter) reservationKeys(ctx context.Context, hold time.Duration) ([][]byte, error) {
	if hold < 0 || hold > MaxHold {
		return nil, fmt.Errorf("hold %v: must be 0 to %v", hold, MaxHold)
	}
	return l.signingKeys(ctx)
}

// hold makes the charges of a request with the expected cost holds. A cost that the caller does not give is 1, unless a rule reads
// the caller's number from an attribute.
func (ev *evaluation) hold(expected *Request, hold time.Duration) {
	number := expected.Cost
	if number == 0 && !slices.ContainsFunc(ev.found, func(n int32) bool { return ev.set.rules[n].Cost.From != "" }) {
		number = 1
	}
	for i := range ev.contributions {
		ev.contributions[i].unit = ev.contributions[i].cost / max(1, expected.Cost)
	}
	for i := range ev.charges {
		c, a := &ev.charges[i], &ev.info[i]
		rule := &ev.set.rules[a.rule]
		c.Hold, c.Prepaid = cmp.Or(hold, DefaultHold), rule.OnHoldExpiry == ChargeHold
		a.unit = c.Cost / max(1, expected.Cost)
		for _, by := range ev.contributors(c, a) {
			a.scale = max(a.scale, ev.set.rules[by.rule].Cost.scale(by.unit, number))
		}
	}
}

// reserved returns the parts of a reservation whose charges were decided. A charge that was denied has a part without units.
func (ev *evaluation) reserved(hold time.Duration) []reserved {
	var parts []reserved
	for i := range ev.charges {
		c, a, result := &ev.charges[i], &ev.info[i], &ev.results[i]
		if c.Cost == 0 || c.Observe && result.Err == nil && result.Granted == 0 {
			continue // a shadow limit that would have denied records nothing
		}
		rule := &ev.set.rules[a.rule]
		p := reserved{
			Rule: rule.ID, Name: rule.limits[a.limit].name, Subject: c.Subject, Counter: c.Counter, Limit: c.Limit, Whole: c.Whole, Origin: a.origin,
			Observe: c.Observe, Exposed: a.exposed, Held: c.Holds(), Home: c.Regions == HomeRegion, Receipt: result.Receipt,
			Unit: a.unit, Cost: c.Cost, Settled: a.settled, Units: ev.reservedUnits(a.rule),
		}
		if c.Prepaid && p.Receipt.Units > 0 && !p.Receipt.Local {
			p.RefundBefore = result.Time.Add(cmp.Or(hold, DefaultHold)).UnixMicro()
		}
		parts = append(parts, p)
	}
	return parts
}

// covered returns Reservation.Covered of charges that were decided.
func (ev *evaluation) covered() int64 {
	covered := int64(MaxCost)
	for i := range ev.charges {
		c, a, result := &ev.charges[i], &ev.info[i], &ev.results[i]
		if a.scale == 0 || c.Observe {
			continue
		}
		units := result.Receipt.Units
		if result.Err != nil && result.Allowed { // OnStoreFailure allows it
			units = c.Cost
		}
		covered = min(covered, (a.settled+units)/a.scale)
	}
	return covered
}

// Commit ends a reservation and charges the actual cost, even if it is more than was held or the hold has expired. actual carries
// what is known now: its Cost, or the attributes that rules read the cost from. The charge is capped, so that one commit cannot
// deny a client for very long: at ten times the reserved cost, at the reserved cost plus the limit's capacity, or at the rule's
// Cost.Max, whichever is largest. Decision.Limits shows what was charged.
//
// A reservation ends once. A second Commit or Cancel of the token charges nothing and gives nothing back; its LimitDecisions have a
// Cost and Granted of 0. This is guaranteed until the hold would have expired. It is guaranteed for an hour or the limit's window,
// whichever is longer, if units were recorded at once (leaky buckets, sliding logs), if the store did not decide the reservation,
// or if the first call came after the hold had expired. If the store cannot report whether this is the first call, the actual cost
// is charged and units recorded in excess of it are not given back: the count errs on the safe side, and the error reports it.
//
// The error is the store's if the store is unavailable. Do not commit again in that case: the charge may have been recorded, and
// held units become available again when the hold expires.
func (l *Limiter) Commit(ctx context.Context, token []byte, actual Request) (Decision, error) {
	return l.settle(ctx, CallCommit, actual.Attributes, token, func(p *reserved) int64 { return l.actualCost(p, &actual) })
}

// Cancel ends a reservation without charging it. Its errors are those of Commit.
func (l *Limiter) Cancel(ctx context.Context, token []byte) (Decision, error) {
	return l.settle(ctx, CallCancel, nil, token, func(*reserved) int64 { return 0 })
}

// settle ends a reservation and charges cost for each of its parts.
func (l *Limiter) settle(
	ctx context.Context, call Call, attributes Attributes, token []byte, cost func(*reserved) int64,
) (d Decision, err error) {
	begun := l.observer.begin()
	defer func() { l.observer.observe(ctx, call, attributes, &d, err, begun) }()
	keys, err := l.signingKeys(ctx)
	if err != nil {
		return Decision{}, err
	}
	set := l.rules.Load()
	parts, err := l.open(token, keys, set)
	if err != nil {
		return Decision{}, err
	}
	s := l.newSettlement(ctx, token, parts, false, cost)
	results := make([]Result, len(parts))
	return s.decision(set, results, take(ctx, l.store, s.charges, results))
}

// Refund gives back the cost of a request on all limits that apply, up to what was used; a cost of MaxCost resets them. See
// Charge.Credit. It needs no receipt, so any caller can give units back to any client. The error is the store's if the store is
// unavailable.
func (l *Limiter) Refund(ctx context.Context, req Request) (Decision, error) {
	return l.evaluate(ctx, CallRefund, req, slotsSkipped, (*evaluation).refund)
}

func (ev *evaluation) refund(ctx context.Context, store Store) (Decision, error) {
	if len(ev.charges) == 0 {
		return ev.decision(PathNone), nil
	}
	for i := range ev.charges {
		c := &ev.charges[i]
		c.Credit, c.Observe = true, c.Observe || ev.info[i].missing != ""
	}
	err := take(ctx, store, ev.charges, ev.results)
	path := PathStore
	if err != nil {
		path = PathFailed
		for i := range ev.results {
			ev.results[i].Allowed = true // a refund denies nothing
		}
	}
	return ev.decision(path), err
}

// Peek returns the decision that Check would return, without charging. Its errors are those of Check.
func (l *Limiter) Peek(ctx context.Context, req Request) (Decision, error) {
	return l.evaluate(ctx, CallPeek, req, slotsPeeked, func(ev *evaluation, ctx context.Context, store Store) (Decision, error) {
		d, _ := ev.peek(ctx, store) // if the store is unavailable, OnStoreFailure decides
		return d, nil
	})
}

func unknownRule(id string) error { return fmt.Errorf("%w: %s", ErrUnknownRule, strconv.Quote(id)) }
