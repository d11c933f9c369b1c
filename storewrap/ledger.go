package storewrap

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/holdtable"
)

// maxTallies is the maximum number of counters in the ledger, which take about 40 MB.
const maxTallies = 131_072

// ledger is what this node has counted on its own while the store was unavailable.
type ledger struct {
	mu        sync.Mutex
	max       int // number of tallies
	index     map[counterKey]*tally
	tallies   []*tally
	holds     holdtable.Table
	clockHand int   // position of the next candidate for eviction
	owing     int   // tallies with units that the store is not charged yet
	inFlight  int   // charges that the store has not answered
	debts     int64 // number of the last debt

	settling atomic.Bool
	evicted  atomic.Int64
}

// counterKey identifies a counter.
type counterKey struct {
	subject headgate.Subject
	counter headgate.Counter
}

// tally is this node's count of one counter.
type tally struct {
	counterKey
	position int // in ledger.tallies
	limit    headgate.Limit
	share    headgate.Limit // this node's share of limit
	// counted is this node's count, by its share. charged is the same count without the units that the store has yet to be
	// charged with.
	counted, charged headgate.State
	owes             bool
	settled          bool // the store was charged with all of it, and its result is known
	// inFlight are charges that the store has not answered: its reported remaining units may not include them.
	inFlight []debt
	// retry are charges that the store did not record, as of retryFrom.
	retry     []headgate.Charge
	retryFrom time.Time
}

// charge returns an empty charge on the counter, by this node's share.
func (t *tally) charge() headgate.Charge {
	return headgate.Charge{Subject: t.subject, Counter: t.counter, Limit: t.share}
}

// owed returns the charges that the store has yet to receive.
func (t *tally) owed(now time.Time) []headgate.Charge {
	c := t.charge()
	owed := c.Since(t.charged, t.counted, now)
	for _, c := range t.retry {
		c.Age += now.Sub(t.retryFrom)
		owed = append(owed, c)
	}
	for i := range owed {
		owed[i].Limit = t.limit
	}
	return owed
}

// significant reports whether at least a hundredth of the limit is owed.
func (t *tally) significant(now time.Time) bool {
	var units int64
	for _, c := range t.owed(now) {
		units += c.Cost
	}
	return 100*units >= t.limit.Capacity()
}

// restart rebuilds the count from the store's last known state (seed), the charges in flight and the charges owed.
func (t *tally) restart(limit, share headgate.Limit, seed headgate.Charge, now time.Time) {
	owed := t.owed(now)
	t.limit, t.share, t.charged, t.retry = limit, share, headgate.State{}, nil
	if seed.Cost > 0 {
		t.charged, _ = share.Take(t.charged, seed, now)
	}
	for _, d := range t.inFlight {
		c := d.charge
		c.Age += now.Sub(d.at)
		t.charged, _ = share.Take(t.charged, c, now)
	}
	t.counted = t.charged
	for _, c := range owed {
		t.counted, _ = share.Take(t.counted, c, now)
	}
}

// getOrCreate returns the tally of a charge.
func (l *ledger) getOrCreate(c *headgate.Charge, now time.Time) (t *tally, created bool) {
	key := counterKey{c.Subject, c.Counter}
	if t := l.index[key]; t != nil {
		return t, false
	}
	if l.index == nil {
		l.index = map[counterKey]*tally{}
	}
	if len(l.tallies) >= l.max {
		l.evict(now)
	}
	t = &tally{counterKey: key, position: len(l.tallies)}
	l.index[key] = t
	l.tallies = append(l.tallies, t)
	return t, true
}

// evict removes a tally, preferably one that has expired and owes nothing, among the next eight.
func (l *ledger) evict(now time.Time) {
	var victim *tally
	for range 8 {
		l.clockHand = (l.clockHand + 1) % len(l.tallies)
		victim = l.tallies[l.clockHand]
		if !victim.owes && victim.counted.Expires <= now.Unix() {
			break
		}
	}
	if victim.owes || victim.counted.Expires > now.Unix() {
		l.evicted.Add(1)
	}
	l.remove(victim)
}

func (l *ledger) remove(t *tally) {
	l.setOwes(t, false)
	last := l.tallies[len(l.tallies)-1]
	l.tallies[t.position], last.position = last, t.position
	l.tallies[len(l.tallies)-1] = nil
	l.tallies = l.tallies[:len(l.tallies)-1]
	delete(l.index, t.counterKey)
}

// setOwes sets whether a tally owes something, and counts it.
func (l *ledger) setOwes(t *tally, owes bool) {
	if t.owes == owes {
		return
	}
	t.owes = owes
	if owes {
		l.owing++
	} else {
		l.owing--
	}
}

// pending returns how many tallies owe something, plus the charges in flight.
func (l *ledger) pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owing + l.inFlight
}

// drop removes tallies that are unneeded and owe nothing.
func (l *ledger) drop(unneeded func(*tally) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.tallies) - 1; i >= 0; i-- {
		if t := l.tallies[i]; !t.owes && unneeded(t) {
			l.remove(t)
		}
	}
	if len(l.tallies) == 0 {
		l.index, l.tallies = nil, nil
	}
}
