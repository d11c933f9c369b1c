package storewrap

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// maxTallies is how many counters a node keeps by itself: about 40 MB of them.
const maxTallies = 131_072

// ledger is what this node has counted by itself.
type ledger struct {
	mu      sync.Mutex
	most    int // tallies
	index   map[counter]*tally
	tallies []*tally
	hand    int // where to look for one to forget
	owing   int // how many owe something
	sent    int // of what they owed is under way

	settling  atomic.Bool
	forgotten atomic.Int64
}

type counter struct {
	subject headgate.Subject
	counter headgate.Counter
}

// tally is this node's count of one counter.
type tally struct {
	counter
	place int
	whole headgate.Limit
	scale headgate.Limit // this node's share of it
	// here is this node's count, by its share. there is what it would be without what the store is yet to be charged.
	here, there headgate.State
	owes        bool
	settled     bool // the store has all of it, and what it said of that is known
	// again is what the store could not be charged, at a time.
	again     []headgate.Charge
	againFrom time.Time
}

func (t *tally) charge() headgate.Charge {
	return headgate.Charge{Subject: t.subject, Counter: t.counter.counter, Limit: t.scale}
}

// owed is what the store is yet to be charged.
func (t *tally) owed(now time.Time) []headgate.Charge {
	c := t.charge()
	owed := c.Since(t.there, t.here, now)
	for _, c := range t.again {
		c.Age += now.Sub(t.againFrom)
		owed = append(owed, c)
	}
	for i := range owed {
		owed[i].Limit = t.whole
	}
	return owed
}

// notable is true if a hundredth of the limit or more is owed.
func (t *tally) notable(now time.Time) bool {
	var units int64
	for _, c := range t.owed(now) {
		units += c.Cost
	}
	return 100*units >= t.whole.Capacity()
}

// restart makes the count begin with what the store is known to have, and what it is yet to be charged on top.
func (t *tally) restart(whole, scale headgate.Limit, seed headgate.Charge, now time.Time) {
	owed := t.owed(now)
	t.whole, t.scale, t.there, t.again = whole, scale, headgate.State{}, nil
	if seed.Cost > 0 {
		t.there, _ = scale.Take(t.there, seed, now)
	}
	t.here = t.there
	for _, c := range owed {
		t.here, _ = scale.Take(t.here, c, now)
	}
}

// find is the tally of a charge, which is new if there is none.
func (l *ledger) find(c *headgate.Charge, now time.Time) (t *tally, isNew bool) {
	key := counter{c.Subject, c.Counter}
	if t := l.index[key]; t != nil {
		return t, false
	}
	if l.index == nil {
		l.index = map[counter]*tally{}
	}
	if len(l.tallies) >= l.most {
		l.forget(now)
	}
	t = &tally{counter: key, place: len(l.tallies)}
	l.index[key] = t
	l.tallies = append(l.tallies, t)
	return t, true
}

// forget makes room: for one that has expired, if it finds it soon.
func (l *ledger) forget(now time.Time) {
	var gone *tally
	for range 8 {
		l.hand = (l.hand + 1) % len(l.tallies)
		gone = l.tallies[l.hand]
		if !gone.owes && gone.here.Expires <= now.Unix() {
			break
		}
	}
	if gone.owes || gone.here.Expires > now.Unix() {
		l.forgotten.Add(1)
	}
	l.remove(gone)
}

func (l *ledger) remove(t *tally) {
	l.owes(t, false)
	last := l.tallies[len(l.tallies)-1]
	l.tallies[t.place], last.place = last, t.place
	l.tallies[len(l.tallies)-1] = nil
	l.tallies = l.tallies[:len(l.tallies)-1]
	delete(l.index, t.counter)
}

func (l *ledger) owes(t *tally, owes bool) {
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

// waiting is how many tallies owe something; what is being charged is still owed.
func (l *ledger) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owing + l.sent
}

// drop forgets tallies that are no longer needed, and owe nothing.
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
