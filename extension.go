package headgate

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Extend continues a reservation, for example of a long stream, before it expires or its units are used up. used and expected are
// requests with the same attributes as that of Reserve, and the total cost since Reserve: what was used so far, which is charged as
// by Commit and not given back later, and what is expected now. Extend reserves the difference for another hold, or as many units as are left. If none are
// left, the decision is a denial, and the stream must stop.
//
// The token of the result replaces the old one, even if the extension was denied or failed: commit it with the total cost. If the store
// is unavailable, Rule.OnStoreFailure decides, and the error is that of Commit.
func (l *Limiter) Extend(ctx context.Context, token []byte, used, expected Request, hold time.Duration) (r Reservation, err error) {
	r.Token = token
	r.Decision, err = l.evaluate(ctx, CallReserve, expected, slotsSkipped, func(ev *evaluation, ctx context.Context, _ Store) (Decision, error) {
		err := l.extend(ctx, ev, &r, &used, &expected, hold)
		return r.Decision, err
	})
	return r, err
}

// extend settles a reservation and decides an evaluation's charges as holds, in one call to the store.
func (l *Limiter) extend(ctx context.Context, ev *evaluation, r *Reservation, used, expected *Request, hold time.Duration) error {
	begun := l.observer.begin()
	keys, err := l.reservationKeys(ctx, hold)
	if err != nil {
		return err
	}
	parts, err := l.open(r.Token, keys, ev.set)
	if err != nil {
		return err
	}
	ev.hold(expected, hold)
	ev.subtract(used, parts)
	s := l.newSettlement(ctx, r.Token, parts, true, func(p *reserved) int64 { return l.actualCost(p, used) })
	if s.claim == claimedBefore {
		return errEnded
	}
	charges := s.charges
	if !ev.denied {
		charges = slices.Concat(charges, ev.charges)
	}
	results := make([]Result, len(charges))
	err = take(ctx, l.store, charges, results)
	if s.endedBefore(results) {
		ev.undo(ctx, l.store, results[len(parts):])
		return errEnded
	}
	committed, commitErr := s.decision(ev.set, results[:len(parts)], firstError(results[:len(parts)]))
	l.observer.observe(ctx, CallCommit, used.Attributes, &committed, commitErr, begun)

	next := []reserved(nil)
	if ev.denied {
		r.Decision = ev.deny()
	} else {
		if copy(ev.results, results[len(parts):]); err != nil {
			ev.fail(ctx, l.store)
		}
		r.Decision = ev.decision(ev.path())
		next = ev.reserved(hold)
	}
	r.Covered = ev.covered()
	for i := range parts {
		if e := results[i].Err; errors.Is(e, ErrUnavailable) && !errors.Is(e, ErrUnanswered) {
			next = slices.DeleteFunc(next, func(p reserved) bool { return p.Counter == parts[i].Counter && p.Subject == parts[i].Subject })
			next = append(next, parts[i]) // it was not settled
		}
	}
	if r.Token, err = sealBounded(keys[0], next); err != nil {
		return err
	}
	return commitErr
}

// firstError returns the error of the first charge that the store did not decide.
func firstError(results []Result) error {
	for i := range results {
		if results[i].Err != nil {
			return results[i].Err
		}
	}
	return nil
}

// subtract reduces the charges to what the expected cost exceeds the used cost by, but at least to one more of the caller's number,
// and accepts as little as that. Charges that do not depend on the caller's number are removed: they were made by Reserve.
func (ev *evaluation) subtract(used *Request, parts []reserved) {
	kept := 0
	for i := range ev.charges {
		c, a := &ev.charges[i], &ev.info[i]
		if a.missing == "" {
			if a.scale == 0 {
				continue
			}
			for _, by := range ev.contributors(c, a) {
				a.settled = max(a.settled, ev.set.rules[by.rule].Cost.of(used, by.unit))
			}
			for j := range parts { // what was charged before stays charged, even if less was used
				if p := &parts[j]; p.Counter == c.Counter && p.Subject == c.Subject {
					a.settled = max(a.settled, p.Settled)
				}
			}
			c.AtLeast = a.scale
			c.Cost = max(c.Cost-a.settled, c.AtLeast)
		}
		ev.charges[kept], ev.info[kept] = *c, *a
		kept++
	}
	ev.charges, ev.info, ev.results = ev.charges[:kept], ev.info[:kept], ev.results[:kept]
}
