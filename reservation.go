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
	// ErrInvalidToken means that a token was not made by Reserve with the same secret.
	ErrInvalidToken = errors.New("invalid reservation token")
)

// Reservation is the result of Limiter.Reserve.
type Reservation struct {
	Decision Decision
	// Token identifies the reservation in Commit and Cancel, on any node with the same secret. It is nil if there is nothing to
	// commit: the request was denied, or no limit applies.
	Token []byte
}

// Reserve decides a request whose cost is known only after it was served, such as the tokens of a language model. It holds the
// expected cost until Commit or Cancel, or until hold has passed; 0 means DefaultHold. Held units are unavailable to other
// requests, so that requests in flight cannot spend the same units. They become available again automatically when the hold
// expires.
//
// The token is signed with a key derived from Options.Secret, or else with the store's key. With neither, or if the store is
// unavailable before this node has fetched the store's key, nothing is reserved or charged and the error wraps ErrUnavailable.
//
// Leaky buckets and sliding logs cannot hold units: they are charged at once, and Commit and Cancel correct the charge.
func (l *Limiter) Reserve(ctx context.Context, req Request, hold time.Duration) (Reservation, error) {
	var token []byte
	d, err := l.evaluate(ctx, CallReserve, req, func(ev *evaluation, ctx context.Context, store Store) (d Decision, err error) {
		d, token, err = l.reserve(ctx, ev, req.Cost, hold)
		return d, err
	})
	return Reservation{d, token}, err
}

// reserve decides an evaluation's charges as holds and seals them in a token.
func (l *Limiter) reserve(ctx context.Context, ev *evaluation, cost int64, hold time.Duration) (d Decision, token []byte, err error) {
	if hold < 0 || hold > MaxHold {
		return d, nil, fmt.Errorf("hold %v: must be 0 to %v", hold, MaxHold)
	}
	keys, err := l.signingKeys(ctx)
	if err != nil {
		return d, nil, err
	}
	for i := range ev.charges {
		ev.charges[i].Hold = cmp.Or(hold, DefaultHold)
	}
	if d = ev.decide(ctx, l.store); !d.Allowed {
		return d, nil, nil
	}
	var parts []reserved
	for i := range d.Limits {
		c, limit := &ev.charges[i], &d.Limits[i]
		if c.Cost == 0 || limit.Err == nil && limit.Granted == 0 {
			continue // a shadow limit that would have denied records nothing
		}
		parts = append(parts, reserved{
			Rule: limit.Rule, Name: limit.Name, Subject: c.Subject, Counter: c.Counter, Limit: c.Limit, Origin: limit.Origin,
			Observe: c.Observe, Exposed: limit.Exposed, Held: c.Holds(), Receipt: limit.Receipt,
			Unit: c.Cost / max(1, cost), Cost: c.Cost,
		})
	}
	token = seal(keys[0], parts)
	if len(token) > maxToken {
		charges, _ := settlement(parts, func(*reserved) int64 { return 0 }, true, true)
		_ = take(ctx, l.store, charges, make([]Result, len(charges))) // if it fails, the holds expire
		return Decision{}, nil, fmt.Errorf("reservation on %d limits: token is %d bytes, must be at most %d: match fewer rules", len(parts), len(token), maxToken)
	}
	return d, token, nil
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
	first, unknown := l.claim(ctx, token, parts)
	charges, withheld := settlement(parts, cost, first, unknown == nil)
	results := make([]Result, len(parts))
	err = take(ctx, l.store, charges, results)
	switch {
	case unknown == nil && !first:
		err = nil // there was nothing to charge
	case err == nil && withheld:
		err = unknown
	}
	d = Decision{Allowed: true, Path: pathOf(results), Version: set.version, Limits: make([]LimitDecision, len(parts))}
	for i := range parts {
		p := &parts[i]
		d.Limits[i] = LimitDecision{
			Rule: p.Rule, Name: p.Name, Limit: p.Limit, Origin: p.Origin, Subject: p.Subject, Counter: p.Counter,
			Cost: charges[i].Cost, Enforced: !p.Observe, Exposed: p.Exposed, Result: results[i],
		}
		if charges[i].refunds() {
			d.Limits[i].Cost = -charges[i].Cost
		}
		if n, ok := set.byID[p.Rule]; ok {
			rule := &set.rules[n]
			repeated := slices.ContainsFunc(parts[:i], func(o reserved) bool { return o.Rule == p.Rule && o.Name == p.Name && o.Origin != FromCandidate })
			d.Limits[i].Metered = rule.Meter && p.Origin != FromCandidate && rule.limits[0].name == p.Name && !repeated
		}
		if results[i].Time.After(d.Time) {
			d.Time = results[i].Time
		}
	}
	return d, err
}

// actualCost returns the actual cost of a request by a limit's rule, or by the rule at the time of Reserve if it was removed.
func (l *Limiter) actualCost(p *reserved, actual *Request) int64 {
	unit := Cost{Default: p.Unit}
	set := l.rules.Load()
	if n, ok := set.byID[p.Rule]; ok {
		rule := &set.rules[n]
		unit.From, unit.Min, unit.Max = rule.Cost.From, rule.Cost.Min, rule.Cost.Max
	}
	return min(unit.of(actual, unit.base()), max(maxCommitRatio*p.Cost, p.Cost+p.Limit.Capacity(), unit.Max))
}

// maxCommitRatio is how many times its reserved cost a commit may charge.
const maxCommitRatio = 10

// settle returns the charge that ends one part of a reservation at its actual cost.
func (p *reserved) settle(cost int64) Charge {
	c := Charge{Subject: p.Subject, Counter: p.Counter, Limit: p.Limit}
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

// Refund gives back the cost of a request on all limits that apply, up to what was used; a cost of MaxCost resets them. See
// Charge.Credit. It needs no receipt, so any caller can give units back to any client. The error is the store's if the store is
// unavailable.
func (l *Limiter) Refund(ctx context.Context, req Request) (Decision, error) {
	return l.evaluate(ctx, CallRefund, req, (*evaluation).refund)
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
	return l.evaluate(ctx, CallPeek, req, func(ev *evaluation, ctx context.Context, store Store) (Decision, error) {
		d, _ := ev.peek(ctx, store) // if the store is unavailable, OnStoreFailure decides
		return d, nil
	})
}

func unknownRule(id string) error { return fmt.Errorf("%w: %s", ErrUnknownRule, strconv.Quote(id)) }
