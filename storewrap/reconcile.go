package storewrap

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
)

const (
	// batch is how many charges are made in one call, more or less; a log may owe more at once.
	batch = 64
	// patience is for calls that nobody waits for.
	patience = time.Second
	// soon is when the store is charged with what was admitted while it was there, if that is notable. With all the rest it is
	// every so many turns: a store that is busy has other things to do.
	soon      = 50 * time.Millisecond
	restEvery = 20
)

// settleSoon has the store charged with what this node has admitted by itself though the store is there, since it was busy or
// stumbled.
func (s *Store) settleSoon() {
	if !s.ledger.settling.CompareAndSwap(false, true) {
		return
	}
	s.background.run(func(ctx context.Context) {
		for turn := 1; ; turn++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(jitter(soon)):
			}
			if turn < restEvery {
				s.reconcile(ctx, func(t *tally) bool { return s.present(t) && t.notable(time.Now()) })
				continue
			}
			s.ledger.settling.Store(false) // what is admitted from here on needs another one
			if !s.reconcile(ctx, s.present) {
				s.settleSoon()
			}
			return
		}
	})
}

func (s *Store) present(t *tally) bool { return !s.partOf(t.subject).away.Load() }

// reconcile charges the store with what this node has admitted by itself on some counters, as far as it still counts. Each unit
// is charged once: what is not answered may have been, and is not charged again. It is false if the store could not be asked.
func (s *Store) reconcile(ctx context.Context, which func(*tally) bool) bool {
	// A second turn is for what is admitted during the first.
	for range 2 {
		for from := 0; from >= 0; {
			now := time.Now()
			var sent []owing
			if sent, from = s.ledger.collect(now, from, which); !s.charge(ctx, now, sent) {
				return false
			}
		}
	}
	return true
}

// owing is what one tally owes.
type owing struct {
	tally  *tally
	charge headgate.Charge
}

// collect gathers about a batch of what is owed, from a place on, and says where to go on; -1 is nowhere. What is collected
// counts as charged.
func (l *ledger) collect(now time.Time, from int, wanted func(*tally) bool) (owed []owing, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for end := min(len(l.tallies), from+1_024); from < end && len(owed) < batch; from++ {
		t := l.tallies[from]
		if !t.owes || !wanted(t) {
			continue
		}
		for _, c := range t.owed(now) {
			owed = append(owed, owing{t, c})
		}
		t.there, t.again = t.here, nil
		l.owes(t, false)
	}
	if from >= len(l.tallies) {
		from = -1
	}
	l.sent += len(owed)
	return owed, from
}

// charge charges the store. What it certainly did not take is owed again. It does not end with ctx, half way.
func (s *Store) charge(ctx context.Context, now time.Time, owed []owing) bool {
	good := true
	for len(owed) > 0 {
		n := min(batch, len(owed))
		// Before each comes a question, by which it is known what the limit had no room for.
		charges, results := make([]headgate.Charge, 2*n), make([]headgate.Result, 2*n)
		for i, o := range owed[:n] {
			c := &o.charge
			charges[2*i] = headgate.Charge{Subject: c.Subject, Counter: c.Counter, Limit: c.Limit}
			charges[2*i+1] = *c
		}
		// The question goes the same way: that one connection works does not mean that another does.
		if s.ask(&charges[0]) == nil { //nolint:contextcheck // it has a deadline of its own
			asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			_ = s.inner.Take(asking, charges, results) // each result has its own
			cancel()
		} else {
			_ = tell(results, errAway)
		}
		for i := range n {
			before, after := &results[2*i], &results[2*i+1]
			switch err := after.Err; {
			case err == nil:
				s.charged.Add(after.Granted)
				s.beyond.Add(max(0, after.Granted-before.Remaining))
				s.learn(&charges[2*i+1], after, 0, now.Sub(s.start))
			case unanswered(err):
				s.unanswered.Add(owed[i].charge.Cost)
			default:
				good = false
			}
			s.ledger.answered(now, owed[i], after.Err)
		}
		owed = owed[n:]
	}
	return good
}

// answered notes what became of something that was collected at a time.
func (l *ledger) answered(now time.Time, o owing, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent--
	t := o.tally
	if err == nil || unanswered(err) || l.index[t.counter] != t { // or it is forgotten
		t.settled = err == nil && !t.owes
		return
	}
	for i := range t.again {
		t.again[i].Age += now.Sub(t.againFrom)
	}
	t.again, t.againFrom = append(t.again, o.charge), now
	l.owes(t, true)
}

func (s *Store) partOf(subject headgate.Subject) *part {
	var room [1]*part
	return s.partsOf([]headgate.Charge{{Subject: subject}}, room[:0])[0]
}

// unanswered is true of a charge that may have been recorded.
func unanswered(err error) bool { return errors.Is(err, headgate.ErrUnanswered) }
