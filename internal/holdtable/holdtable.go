// Package holdtable keeps holds by their number, beside the counters that they are on, for stores in memory. It knows when a
// hold may be forgotten; it knows no counters and needs its caller's lock.
package holdtable

import "github.com/headgate/headgate"

// sampled is among how many holds each new one searches for those that have ended. At the worst, if none is ever released, a
// quarter of what is kept has ended.
const sampled = 4

// Table is a set of holds. The zero value is empty and ready to use.
type Table struct{ holds map[key]headgate.Hold }

type key struct {
	subject headgate.Subject
	counter headgate.Counter
	number  int64
}

// Load returns what is kept of the hold that a charge releases: the State.Hold of that charge.
func (t *Table) Load(c *headgate.Charge) headgate.Hold {
	if c.Release.Units == 0 {
		return headgate.Hold{}
	}
	return t.holds[key{c.Subject, c.Counter, c.Release.Mark}]
}

// Keep adds the hold that a charge has made and deletes the one that it has released.
func (t *Table) Keep(c *headgate.Charge, r *headgate.Result) {
	switch {
	case c.Release.Units > 0:
		delete(t.holds, key{c.Subject, c.Counter, c.Release.Mark})
	case r.Receipt.Units > 0 && c.Holds():
		if t.holds == nil {
			t.holds = map[key]headgate.Hold{}
		}
		t.sweep(r.Time.UnixMicro())
		t.holds[key{c.Subject, c.Counter, r.Receipt.Mark}] = headgate.Hold{Units: r.Receipt.Units, End: r.Receipt.Time}
	}
}

// sweep deletes what has ended among a few holds. Where a map begins is random.
func (t *Table) sweep(now int64) {
	seen := 0
	for k, hold := range t.holds {
		if hold.End <= now {
			delete(t.holds, k)
		}
		if seen++; seen == sampled {
			return
		}
	}
}
