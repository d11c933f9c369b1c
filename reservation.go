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

// DefaultHold is how long a reservation is held if nothing else is said.
const DefaultHold = time.Minute

// Errors of requests that make no sense.
var (
	// ErrUnknownRule says that there is no rule of the ID in Request.Rule.
	ErrUnknownRule = errors.New("there is no such rule")
	// ErrInvalidToken says that a token is none that Reserve made, with the same secret.
	ErrInvalidToken = errors.New("this is not the token of a reservation")
)

// Reservation is what Limiter.Reserve holds.
type Reservation struct {
	Decision Decision
	// Token is for Commit and Cancel, on any node that has the same secret. It is nil if there is nothing to commit.
	Token []byte
}

// Reserve decides a request whose cost is known only afterwards, such as the tokens of a language model. It holds what the
// request is expected to cost until Commit or Cancel, or until hold is over; 0 means DefaultHold. What is held is taken
// from what is left, so that requests in flight cannot spend the same units, and comes back by itself.
//
// The token is signed, with a key of Options.Secret or else the store's own. Where there is neither, and where the store does not
// answer before this node has learned its key, there is no reservation: the error wraps ErrUnavailable and nothing is charged.
//
// Limits that hold nothing, leaky buckets and sliding logs, are charged at once, and put right by Commit and Cancel.
func (l *Limiter) Reserve(ctx context.Context, req Request, hold time.Duration) (Reservation, error) {
	var token []byte
	d, err := l.evaluate(ctx, CallReserve, req, func(ev *evaluation, ctx context.Context, store Store) (d Decision, err error) {
		d, token, err = l.reserve(ctx, ev, req.Cost, hold)
		return d, err
	})
	return Reservation{d, token}, err
}

func (l *Limiter) reserve(ctx context.Context, ev *evaluation, cost int64, hold time.Duration) (d Decision, token []byte, err error) {
	if hold < 0 || hold > MaxHold {
		return d, nil, fmt.Errorf("a reservation cannot be held for %v: the most is %v", hold, MaxHold)
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
			continue // a shadow that would have denied counts nothing
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
		_ = take(ctx, l.store, charges, make([]Result, len(charges))) // else it comes back by itself
		return Decision{}, nil, fmt.Errorf("a reservation on %d limits does not fit into a token of %d bytes: let fewer rules match it", len(parts), maxToken)
	}
	return d, token, nil
}

// Commit ends a reservation and charges what the request did cost: also if that is more than was held, or comes after the hold was
// over. actual has what is known now: its Cost, or the attributes that rules take their cost from. What it may charge is bounded,
// so that no commit denies a client for ages: by ten times what was reserved, by that and the limit's capacity, or by the rule's
// Cost.Max, whichever is most. Decision.Limits shows what was charged.
//
// A reservation ends once. A second Commit or Cancel of the token charges nothing and gives nothing back; its Decision has a
// Cost and Granted of 0. This holds while the hold would last, and for an hour or the limit's window, whichever is longer,
// where units were recorded at once (leaky buckets, sliding logs), the reservation was not decided by the store, or the
// first one came after the hold was over. Where the store cannot be asked whether it is the first, what the request cost is
// charged, and units recorded beyond that are not given back: the error then says so, and the count is on the safe side.
//
// The error is the store's if it did not answer. Then do not commit again: the charge may be recorded, and what was held
// comes back by itself.
func (l *Limiter) Commit(ctx context.Context, token []byte, actual Request) (Decision, error) {
	return l.settle(ctx, CallCommit, actual.Attributes, token, func(p *reserved) int64 { return l.actualCost(p, &actual) })
}

// Cancel ends a reservation and charges nothing. The error is as that of Commit.
func (l *Limiter) Cancel(ctx context.Context, token []byte) (Decision, error) {
	return l.settle(ctx, CallCancel, nil, token, func(*reserved) int64 { return 0 })
}

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
		err = nil // nothing was to be charged
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

// actualCost is what a limit's rule says that the request did cost; if the rule is gone, what it said before.
func (l *Limiter) actualCost(p *reserved, actual *Request) int64 {
	unit := Cost{Default: p.Unit}
	set := l.rules.Load()
	if n, ok := set.byID[p.Rule]; ok {
		rule := &set.rules[n]
		unit.From, unit.Min, unit.Max = rule.Cost.From, rule.Cost.Min, rule.Cost.Max
	}
	return min(unit.of(actual), max(maxCommitRatio*p.Cost, p.Cost+p.Limit.Capacity(), unit.Max))
}

// maxCommitRatio is how many times its reservation a commit may cost.
const maxCommitRatio = 10

// settle is the charge that ends one part of a reservation.
func (p *reserved) settle(cost int64) Charge {
	c := Charge{Subject: p.Subject, Counter: p.Counter, Limit: p.Limit}
	switch units := p.Receipt.Units; {
	case p.Held && units > 0:
		c.Release, c.Cost = p.Receipt, cost
	case units == 0: // the store was away
		c.Force, c.Cost = true, cost
	case cost >= units:
		c.Force, c.Cost = true, cost-units
	default:
		c.Refund, c.Cost = p.Receipt, units-cost
	}
	return c
}

// Refund gives back what a request costs, on all limits that apply, as far as they are used; a request that costs MaxCost
// resets them. See Charge.Credit. It needs no receipt: any caller may give any client more. The error is the store's if it
// did not answer.
func (l *Limiter) Refund(ctx context.Context, req Request) (Decision, error) {
	return l.evaluate(ctx, CallRefund, req, (*evaluation).refund)
}

func (ev *evaluation) refund(ctx context.Context, store Store) (Decision, error) {
	if len(ev.charges) == 0 {
		return ev.sum(PathNone), nil
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
			ev.results[i].Allowed = true // nothing is denied
		}
	}
	return ev.sum(path), err
}

// Peek says what Check would, and charges nothing.
func (l *Limiter) Peek(ctx context.Context, req Request) (Decision, error) {
	return l.evaluate(ctx, CallPeek, req, func(ev *evaluation, ctx context.Context, store Store) (Decision, error) {
		d, _ := ev.judge(ctx, store) // where the store does not answer, the rules do
		return d, nil
	})
}

func unknownRule(id string) error { return fmt.Errorf("%w: %s", ErrUnknownRule, strconv.Quote(id)) }
