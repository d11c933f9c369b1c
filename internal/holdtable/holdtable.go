// Package holdtable stores holds by number, separately from their counters, for stores in memory. It knows when a hold may be
// dropped. It does not know counters, and relies on its caller's lock.
package holdtable

import "github.com/headgate/headgate"

// sampled is the number of holds that each new hold checks for expired ones. In the worst case, if no hold is ever released,
// a quarter of the stored holds are expired.
const sampled = 4

// Table is a set of holds. The zero value is empty and ready to use.
type Table struct{ holds map[key]headgate.Hold }

type key struct {
	subject headgate.Subject
	counter headgate.Counter
	number  int64
}

// Load returns the stored hold that a charge releases, for the State.Hold of that charge.
func (t *Table) Load(c *headgate.Charge) headgate.Hold {
	if c.Release.Units == 0 {
		return headgate.Hold{}
	}
	return t.holds[key{c.Subject, c.Counter, c.Release.Mark}]
}

// Keep stores the hold that a charge has made, and deletes the hold that it has released.
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

// sweep deletes expired holds among a few random ones: iteration over a map begins at a random entry.
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
