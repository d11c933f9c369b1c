package storewrap

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// A part that is away is asked again after a while, later each time.
const (
	minProbe = 100 * time.Millisecond
	maxProbe = 400 * time.Millisecond
)

// probe asks a part that is away until it answers, one question at a time, about what failed. It is back when it has been charged with what was
// admitted meanwhile.
func (s *Store) probe(ctx context.Context, p *part, failed *headgate.Charge) {
	for pause := minProbe; ; pause = min(2*pause, maxProbe) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(pause)):
		}
		//nolint:contextcheck // a question has a deadline of its own
		if s.ask(failed) == nil && s.reconcile(ctx, func(t *tally) bool { return s.partOf(t.subject) == p }) {
			break
		}
	}
	gone := p.back(time.Now())
	s.away.Add(-1)
	s.log.Info("the store answers again", "part", p.number, "away", gone.Round(time.Millisecond).String())
	s.reconcile(ctx, s.present) // what was admitted meanwhile
	s.ledger.drop(s.unneeded)
}

// ask is an error if the store does not answer on a counter. It charges nothing, by the same script as every charge.
func (s *Store) ask(c *headgate.Charge) error {
	question := headgate.Charge{Subject: c.Subject, Counter: c.Counter, Limit: c.Limit}
	return s.caller.takeAside(time.Now(), []headgate.Charge{question}, make([]headgate.Result, 1))
}

// unneeded is true of a tally that means nothing any more, or of which the store has said more. Otherwise it stays, though the
// store is back: should that go away again at once, the node must not have its share once more.
func (s *Store) unneeded(t *tally) bool {
	c := t.charge()
	return t.here.Expires <= time.Now().Unix() || s.present(t) && (t.settled || s.known.has(&c))
}
