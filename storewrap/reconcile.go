package storewrap

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

const (
	// reconcileBatch is the approximate number of charges in one call. A sliding log may owe more at once.
	reconcileBatch = 64
	// settleInterval is how often the store is charged with units that were admitted locally although it is available, if
	// they are significant. All others are charged every fullSettleEvery intervals, since the store is busy.
	settleInterval  = 50 * time.Millisecond
	fullSettleEvery = 20
)

// recovering charges a shard that answers again with the units admitted during the outage, and reports whether it could.
func (f *fallback) recovering(ctx context.Context, s *shard) bool {
	return f.reconcile(ctx, func(t *tally) bool { return f.transport.shardOf(t.subject) == s })
}

// recovered charges the store with units admitted just before the circuit closed, and drops unneeded tallies.
func (f *fallback) recovered(ctx context.Context) {
	f.reconcile(ctx, f.onAvailableShard)
	f.ledger.drop(f.unneeded)
}

// unneeded reports whether a tally has expired, or the store's state is known again. Other tallies stay: if the store fails
// again at once, the node must not admit its share twice.
func (f *fallback) unneeded(t *tally) bool {
	return t.counted.Expires <= time.Now().Unix() ||
		f.onAvailableShard(t) && (t.settled || f.cache.isKnown(t.subject, t.counter))
}

// onAvailableShard reports whether the circuit of the tally's shard is closed.
func (f *fallback) onAvailableShard(t *tally) bool { return f.transport.available(t.subject) }

// scheduleSettlement starts charging the store with units that this node admitted locally although the store is available,
// because it was busy or a few calls failed.
func (f *fallback) scheduleSettlement() {
	if !f.ledger.settling.CompareAndSwap(false, true) {
		return
	}
	f.background.run(func(ctx context.Context) {
		for turn := 1; ; turn++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(jitter(settleInterval)):
			}
			if turn < fullSettleEvery {
				f.reconcile(ctx, func(t *tally) bool { return f.onAvailableShard(t) && t.significant(time.Now()) })
				continue
			}
			f.ledger.settling.Store(false) // units admitted from here on start another settlement
			if !f.reconcile(ctx, f.onAvailableShard) {
				f.scheduleSettlement()
			}
			return
		}
	})
}

// reconcile charges the store with the units that this node admitted locally on matching counters, as far as they still
// count. Each unit is charged at most once: a charge that was not answered may have been recorded and is not repeated. It
// returns false if a charge could not be made.
func (f *fallback) reconcile(ctx context.Context, match func(*tally) bool) bool {
	// The second pass charges what was admitted during the first.
	for range 2 {
		for from := 0; from >= 0; {
			now := time.Now()
			var owed []debt
			if owed, from = f.ledger.collect(now, from, match); !f.charge(ctx, now, owed) {
				return false
			}
		}
	}
	return true
}

// debt is one charge that a tally owes, as of a time.
type debt struct {
	tally  *tally
	charge headgate.Charge
	at     time.Time
	number int64
}

// collect returns about a batch of debts, and the position to continue at; -1 at the end. The debts then count as charged and
// in flight.
func (l *ledger) collect(now time.Time, from int, match func(*tally) bool) (owed []debt, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for end := min(len(l.tallies), from+1_024); from < end && len(owed) < reconcileBatch; from++ {
		t := l.tallies[from]
		if !t.owes || !match(t) {
			continue
		}
		for _, c := range t.owed(now) {
			l.debts++
			owed = append(owed, debt{t, c, now, l.debts})
			t.inFlight = append(t.inFlight, owed[len(owed)-1])
		}
		t.charged, t.retry = t.counted, nil
		l.setOwes(t, false)
	}
	if from >= len(l.tallies) {
		from = -1
	}
	l.inFlight += len(owed)
	return owed, from
}

// charge charges the store with debts. Those that it certainly did not record are owed again. It completes even if ctx ends.
func (f *fallback) charge(ctx context.Context, now time.Time, owed []debt) bool {
	good := true
	for len(owed) > 0 {
		n := min(reconcileBatch, len(owed))
		// A peek before each charge shows how many of its units are over the limit.
		charges, results := make([]headgate.Charge, 2*n), make([]headgate.Result, 2*n)
		for i, d := range owed[:n] {
			c := &d.charge
			charges[2*i] = headgate.Charge{Subject: c.Subject, Counter: c.Counter, Limit: c.Limit}
			charges[2*i+1] = *c
		}
		// Probe first: recovery of one connection does not mean that this one works.
		if f.transport.responds(&charges[0]) { //nolint:contextcheck // it has its own deadline
			_ = f.transport.takeInBackground(ctx, charges, results) // each result has its own error
		} else {
			_ = failAll(results, errOpen)
		}
		for i := range n {
			before, after := &results[2*i], &results[2*i+1]
			switch err := after.Err; {
			case err == nil:
				f.charged.Add(after.Granted)
				f.overLimit.Add(max(0, after.Granted-before.Remaining))
				f.cache.reconciled(&charges[2*i+1], after, now)
			case unanswered(err):
				f.transport.unanswered.Add(owed[i].charge.Cost)
			default:
				good = false
			}
			f.ledger.resolve(now, owed[i], after.Err)
		}
		owed = owed[n:]
	}
	return good
}

// resolve records the outcome of a debt.
func (l *ledger) resolve(now time.Time, d debt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	t := d.tally
	t.inFlight = slices.DeleteFunc(t.inFlight, func(other debt) bool { return other.number == d.number })
	if err == nil || unanswered(err) || l.index[t.counterKey] != t { // the tally was evicted
		t.settled = err == nil && !t.owes
		return
	}
	for i := range t.retry {
		t.retry[i].Age += now.Sub(t.retryFrom)
	}
	t.retry, t.retryFrom = append(t.retry, d.charge), now
	l.setOwes(t, true)
}
