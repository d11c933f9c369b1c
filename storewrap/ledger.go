package storewrap

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/holdtable"
)

// maxTallies is how many counters the ledger keeps: about 40 MB of them.
const maxTallies = 131_072

// ledger is what this node has counted on its own.
type ledger struct {
	mu      sync.Mutex
	max     int // tallies
	index   map[counterKey]*tally
	tallies []*tally
	holds   holdtable.Table
	hand    int   // where to look for one to evict
	owing   int   // tallies that owe something
	sent    int   // charges under way
	debts   int64 // collected so far, which numbers them

	settling atomic.Bool
	evicted  atomic.Int64
}

type counterKey struct {
	subject headgate.Subject
	counter headgate.Counter
}

// tally is this node's count of one counter.
type tally struct {
	counterKey
	place int
	whole headgate.Limit
	share headgate.Limit // this node's
	// counted is this node's count, by its share; charged is what that would be without what the store is yet to be charged.
	counted, charged headgate.State
	owes             bool
	settled          bool // the store has all of it, and what it said of that is known
	// inFlight is what the store is being charged: it may not know of it when it says what is left.
	inFlight []debt
	// again is what the store could not be charged, at a time.
	again     []headgate.Charge
	againFrom time.Time
}

func (t *tally) charge() headgate.Charge {
	return headgate.Charge{Subject: t.subject, Counter: t.counter, Limit: t.share}
}

// owed returns what the store is yet to be charged.
func (t *tally) owed(now time.Time) []headgate.Charge {
	c := t.charge()
	owed := c.Since(t.charged, t.counted, now)
	for _, c := range t.again {
		c.Age += now.Sub(t.againFrom)
		owed = append(owed, c)
	}
	for i := range owed {
		owed[i].Limit = t.whole
	}
	return owed
}

// notable reports whether a hundredth of the limit or more is owed.
func (t *tally) notable(now time.Time) bool {
	var units int64
	for _, c := range t.owed(now) {
		units += c.Cost
	}
	return 100*units >= t.whole.Capacity()
}

// restart begins the count with what the store is known to have, what it is being charged, and what it is yet to be charged on
// top.
func (t *tally) restart(whole, share headgate.Limit, seed headgate.Charge, now time.Time) {
	owed := t.owed(now)
	t.whole, t.share, t.charged, t.again = whole, share, headgate.State{}, nil
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
	t = &tally{counterKey: key, place: len(l.tallies)}
	l.index[key] = t
	l.tallies = append(l.tallies, t)
	return t, true
}

// evict makes room: of one that has expired, if it finds it soon.
func (l *ledger) evict(now time.Time) {
	var victim *tally
	for range 8 {
		l.hand = (l.hand + 1) % len(l.tallies)
		victim = l.tallies[l.hand]
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
	l.tallies[t.place], last.place = last, t.place
	l.tallies[len(l.tallies)-1] = nil
	l.tallies = l.tallies[:len(l.tallies)-1]
	delete(l.index, t.counterKey)
}

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

// pending returns how many tallies owe something, what is under way included.
func (l *ledger) pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owing + l.sent
}

// drop removes tallies that are no longer needed and owe nothing.
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
