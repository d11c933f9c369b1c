package storewrap

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

const (
	// reconcileBatch is about how many charges are made in one call; a log may owe more at once.
	reconcileBatch = 64
	// settleAfter is when the store is charged with what was admitted though it is available, if that is notable. With all the
	// rest it is every so many turns: a store that is busy has other things to do.
	settleAfter = 50 * time.Millisecond
	settleRest  = 20
)

// recovering charges a shard that answers again with what was admitted meanwhile, and reports whether it could.
func (f *fallback) recovering(ctx context.Context, s *shard) bool {
	return f.reconcile(ctx, func(t *tally) bool { return f.transport.shardOf(t.subject) == s })
}

// recovered charges the store with what was admitted in the last moment, and drops what is no longer needed.
func (f *fallback) recovered(ctx context.Context) {
	f.reconcile(ctx, f.onAvailableShard)
	f.ledger.drop(f.unneeded)
}

// unneeded reports whether a tally means nothing any more, or the store has said more since. Otherwise it stays: should the store
// fail again at once, the node must not have its share once more.
func (f *fallback) unneeded(t *tally) bool {
	return t.counted.Expires <= time.Now().Unix() ||
		f.onAvailableShard(t) && (t.settled || f.cache.isKnown(t.subject, t.counter))
}

func (f *fallback) onAvailableShard(t *tally) bool { return f.transport.available(t.subject) }

// settleSoon has the store charged with what this node admitted on its own though the store is available, since it was busy or
// stumbled.
func (f *fallback) settleSoon() {
	if !f.ledger.settling.CompareAndSwap(false, true) {
		return
	}
	f.background.run(func(ctx context.Context) {
		for turn := 1; ; turn++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(jitter(settleAfter)):
			}
			if turn < settleRest {
				f.reconcile(ctx, func(t *tally) bool { return f.onAvailableShard(t) && t.notable(time.Now()) })
				continue
			}
			f.ledger.settling.Store(false) // what is admitted from here on needs another turn
			if !f.reconcile(ctx, f.onAvailableShard) {
				f.settleSoon()
			}
			return
		}
	})
}

// reconcile charges the store with what this node has admitted on its own on some counters, as far as it still counts. Each unit
// is charged once: what is not answered may have been recorded, and is not charged again. It reports false if the store could
// not be asked.
func (f *fallback) reconcile(ctx context.Context, which func(*tally) bool) bool {
	// A second turn is for what is admitted during the first.
	for range 2 {
		for from := 0; from >= 0; {
			now := time.Now()
			var owed []debt
			if owed, from = f.ledger.collect(now, from, which); !f.charge(ctx, now, owed) {
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

// collect gathers about a batch of what is owed, and returns where to go on; -1 is the end. What is collected counts as charged.
func (l *ledger) collect(now time.Time, from int, which func(*tally) bool) (owed []debt, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for end := min(len(l.tallies), from+1_024); from < end && len(owed) < reconcileBatch; from++ {
		t := l.tallies[from]
		if !t.owes || !which(t) {
			continue
		}
		for _, c := range t.owed(now) {
			l.debts++
			owed = append(owed, debt{t, c, now, l.debts})
			t.inFlight = append(t.inFlight, owed[len(owed)-1])
		}
		t.charged, t.again = t.counted, nil
		l.setOwes(t, false)
	}
	if from >= len(l.tallies) {
		from = -1
	}
	l.sent += len(owed)
	return owed, from
}

// charge charges the store. What it certainly did not record is owed again. It does not end with ctx half-way.
func (f *fallback) charge(ctx context.Context, now time.Time, owed []debt) bool {
	good := true
	for len(owed) > 0 {
		n := min(reconcileBatch, len(owed))
		// A peek before each charge tells how much the limit had no room for.
		charges, results := make([]headgate.Charge, 2*n), make([]headgate.Result, 2*n)
		for i, d := range owed[:n] {
			c := &d.charge
			charges[2*i] = headgate.Charge{Subject: c.Subject, Counter: c.Counter, Limit: c.Limit}
			charges[2*i+1] = *c
		}
		// That one connection works does not mean that another does: a probe goes the same way.
		if f.transport.answers(&charges[0]) { //nolint:contextcheck // it has a deadline of its own
			_ = f.transport.takePatiently(ctx, charges, results) // each result has its own error
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
			f.ledger.answered(now, owed[i], after.Err)
		}
		owed = owed[n:]
	}
	return good
}

// answered notes what became of a debt that was collected at a time.
func (l *ledger) answered(now time.Time, d debt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent--
	t := d.tally
	t.inFlight = slices.DeleteFunc(t.inFlight, func(other debt) bool { return other.number == d.number })
	if err == nil || unanswered(err) || l.index[t.counterKey] != t { // or it was evicted
		t.settled = err == nil && !t.owes
		return
	}
	for i := range t.again {
		t.again[i].Age += now.Sub(t.againFrom)
	}
	t.again, t.againFrom = append(t.again, d.charge), now
	l.setOwes(t, true)
}
