package headgate

import (
	"context"
	"fmt"
	"time"
)

// lateMargin is how long before the end of its hold a settlement counts as late: the clock difference that is tolerated.
const lateMargin = 1 // second

// repeatable reports whether a second settlement of the part would be recorded again. The counter itself ensures that a hold is
// released once until it expires. It cannot do so for units that were recorded at once or not by the store, nor for a hold that has
// expired, which the counter no longer has.
func (p *reserved) repeatable(now int64) bool {
	return !p.Held || p.Receipt.Units == 0 || p.Receipt.Local || p.Receipt.Time <= (now+lateMargin)*1_000_000
}

// claim marks a token as settled if one of its parts is repeatable, and reports whether this is the first settlement. It returns an
// error if the store is unavailable, so that this is unknown.
func (l *Limiter) claim(ctx context.Context, token []byte, parts []reserved) (first bool, err error) {
	now, span := l.exceptions.now(), time.Duration(0)
	for i := range parts {
		if p := &parts[i]; p.repeatable(now) {
			span = max(span, MaxHold, p.Limit.Window) // as long as recorded units may count
		}
	}
	if span == 0 {
		return true, nil
	}
	sum := hashParts("settled", string(token[len(token)-tokenMAC:]))
	marker := [1]Charge{{
		Subject: Subject(sum[:16]), Counter: CounterOf("reservation", "settled", FixedWindow),
		Limit: Limit{Algorithm: FixedWindow, Count: 1, Window: span}, Cost: 1,
		// Only the store may decide it. If the store is unavailable, it is recorded later, for later settlements.
		Strict: true, OnStoreFailure: FailAllow,
	}}
	var result [1]Result
	if err := take(ctx, l.store, marker[:], result[:]); err != nil {
		return false, fmt.Errorf("cannot determine whether the reservation was settled before: %w", err)
	}
	return result[0].Allowed, nil
}

// settlement returns the charges that end a reservation. If it was settled before, they charge nothing. If that is unknown, they
// give nothing back, and withheld reports whether there was something to give back.
func settlement(parts []reserved, cost func(*reserved) int64, first, known bool) (charges []Charge, withheld bool) {
	charges = make([]Charge, len(parts))
	for i := range parts {
		p := &parts[i]
		c := p.settle(cost(p))
		if unsure := !known && c.refunds(); unsure || known && !first {
			withheld = withheld || unsure
			c = Charge{Subject: p.Subject, Counter: p.Counter, Limit: p.Limit, Force: true}
		}
		charges[i] = c
	}
	return charges, withheld
}
