package storewrap

import (
	"errors"

	"github.com/headgate/headgate"
)

// Stats are what a Store knows of itself.
type Stats struct {
	// Away is how many parts of the store are left alone now, because they do not answer, and Opened how often one has gone away.
	Away   int
	Opened int64
	// Errors are decisions that the store did not answer.
	Errors Errors
	// Waiting is how many counters have units that this node has admitted by itself, and the store is yet to be charged.
	Waiting int
	// Charged is how many such units the store was charged so far, and Beyond how many of them it had no room for: so many more
	// than their limit were admitted.
	Charged, Beyond int64
	// Unanswered is how many units the store was asked for and did not answer in time. They may have been charged.
	Unanswered int64
	// InFlight is how many calls are under way now, and Shed how many were not made because too many were.
	InFlight, Shed int64
	// Leases is how many are under way. Of the units that were taken in advance, some were given back, and some could not be: they
	// are lost until their window is over.
	Leases                      int
	Leased, Returned, LeaseLost int64
	// Mistaken is how many requests at the most were refused by a refusal that was believed, though the store had room again.
	Mistaken int64
	// ForgottenKnown and ForgottenLocal are counters that were still of use and had to make room for others: of those with a lease
	// or a refusal to believe, and of those counted here while the store is away.
	ForgottenKnown, ForgottenLocal int64
}

// Errors are decisions that the store did not answer, by the reason.
type Errors struct {
	// Unavailable could not be asked, Unanswered was asked and did not answer in time, Away was left alone, Busy had too many calls
	// under way.
	Unavailable, Unanswered, Away, Busy int64
}

// kind is an index of Store.errors; of several the highest counts.
type kind int

const (
	away kind = iota
	busy
	unavailable
	late
	kinds
)

// countError counts a decision that the store did not answer for some of its charges.
func (s *Store) countError(results []headgate.Result) {
	worst := kind(-1)
	for i := range results {
		switch err := results[i].Err; {
		case err == nil:
		case unanswered(err):
			worst = max(worst, late)
		case errors.Is(err, errAway):
			worst = max(worst, away)
		case errors.Is(err, errBusy):
			worst = max(worst, busy)
		default:
			worst = max(worst, unavailable)
		}
	}
	if worst >= 0 {
		s.errors[worst].Add(1)
	}
}

// Stats are those of now.
func (s *Store) Stats() Stats {
	ls := &s.known.leases
	ls.mu.Lock()
	leases := len(ls.queue)
	ls.mu.Unlock()
	var under int64
	for _, p := range *s.parts.Load() {
		under += p.under.Load()
	}
	return Stats{
		Away: int(s.away.Load()), Opened: s.opened.Load(),
		Errors: Errors{
			Unavailable: s.errors[unavailable].Load(), Unanswered: s.errors[late].Load(),
			Away: s.errors[away].Load(), Busy: s.errors[busy].Load(),
		},
		Waiting: s.ledger.waiting(), Charged: s.charged.Load(), Beyond: s.beyond.Load(),
		Unanswered: s.unanswered.Load(), InFlight: under, Shed: s.shed.Load(),
		Leases: leases, Leased: ls.taken.Load(), Returned: ls.returned.Load(), LeaseLost: ls.lost.Load(),
		Mistaken: s.known.mistaken.Load(), ForgottenKnown: s.known.forgotten.Load(), ForgottenLocal: s.ledger.forgotten.Load(),
	}
}
