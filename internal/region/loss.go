package region

import (
	"time"

	"github.com/headgate/headgate"
)

// lossFunc returns when the store lost the counters of a subject, zero if it did not, and the time now; see redisstore.Store.Lost.
type lossFunc func(headgate.Subject) (at, now time.Time)

// PresumeUsed makes shares count as used up that the inner store may have forgotten: counters that do not exist, until the window has ended in
// which the store lost its data, or for as long as a bucket needs to refill. Such a share can only be borrowed for. It must be called before
// the first charge.
func (s *Store) PresumeUsed(lost func(headgate.Subject) (at, now time.Time)) { s.lost = lost }

// presume returns the charges, with what missing counters count as. It copies them only if the store has lost something.
func (l lossFunc) presume(charges []headgate.Charge) []headgate.Charge {
	if l == nil {
		return charges
	}
	copied := false
	for i := range charges {
		if charges[i].Whole.Count == 0 {
			continue
		}
		absent := l.absent(&charges[i])
		if absent == 0 {
			continue
		}
		if !copied {
			charges, copied = append([]headgate.Charge(nil), charges...), true
		}
		charges[i].Absent = absent
	}
	return charges
}

// absent returns what the counter of a charge counts as if it does not exist.
func (l lossFunc) absent(c *headgate.Charge) int64 {
	if l == nil || !lendable(&c.Limit) {
		return 0
	}
	at, now := l(c.Subject)
	if at.IsZero() {
		return 0
	}
	until := at.Add(refillTime(&c.Limit))
	if c.Limit.Algorithm != headgate.TokenBucket {
		_, end := windowOf(c, at)
		until = time.UnixMicro(end)
	}
	if now.After(until) {
		return 0
	}
	return c.Limit.Capacity()
}
