package headgate

import (
	"context"
	"fmt"
	"time"
)

// lateMargin is how long before the end of its hold a part is taken for late: as much as clocks may differ.
const lateMargin = 1 // second

// repeatable reports whether a second settlement of the part would count again. The end of a hold counts once by itself
// while the hold lasts. Everything else does not: units that were recorded at once, or not by the store, and the late end of
// a hold, of which the counter knows nothing any more.
func (p *reserved) repeatable(now int64) bool {
	return !p.Held || p.Receipt.Units == 0 || p.Receipt.Local || p.Receipt.Time <= (now+lateMargin)*1_000_000
}

// claim marks a token as settled where its parts do not do so by themselves, and reports whether it was not before. The
// error says that the store did not answer, so that this is not known.
func (l *Limiter) claim(ctx context.Context, token []byte, parts []reserved) (first bool, err error) {
	now, span := l.exceptions.now(), time.Duration(0)
	for i := range parts {
		if p := &parts[i]; p.repeatable(now) {
			span = max(span, MaxHold, p.Limit.Window) // as long as what is recorded may count
		}
	}
	if span == 0 {
		return true, nil
	}
	sum := hashParts("settled", string(token[len(token)-tokenMAC:]))
	marker := [1]Charge{{
		Subject: Subject(sum[:16]), Counter: CounterOf("reservation", "settled", FixedWindow),
		Limit: Limit{Algorithm: FixedWindow, Count: 1, Window: span}, Cost: 1,
		// No node may decide it by itself. If the store cannot, it is recorded later, for those who come then.
		Strict: true, OnStoreFailure: FailAllow,
	}}
	var result [1]Result
	if err := take(ctx, l.store, marker[:], result[:]); err != nil {
		return false, fmt.Errorf("whether the reservation was settled before is not known: %w", err)
	}
	return result[0].Allowed, nil
}

// settlement makes the charges that end a reservation. Of one that was settled before they only look; if that is not known,
// they give nothing back, and withheld is true if there was something.
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
