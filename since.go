package headgate

import "time"

// Since is what one state of a charge's counter has recorded and another has not, as far as it still counts: forced charges,
// with their age, that record the same elsewhere. after has gone on from before, by the charge's limit.
//
// A bucket knows no times, only its level: that is of now. A sliding window knows two spans: what was taken in each is as old
// as its middle.
func (c *Charge) Since(before, after State, now time.Time) []Charge {
	at := micros(now)
	var t Terms
	if !t.read(&Charge{Subject: c.Subject, Limit: c.Limit}, at) {
		return nil
	}
	before, after = before.live(at), after.live(at)
	t.settle(&before, at)
	t.settle(&after, at)
	var taken []Charge
	add := func(units, when int64) {
		if units > 0 {
			taken = append(taken, Charge{
				Subject: c.Subject, Counter: c.Counter, Limit: c.Limit, Cost: units, Force: true,
				Age: time.Duration(max(0, at-when)) * time.Microsecond,
			})
		}
	}
	units := after.Used - before.Used
	switch t.Algorithm {
	case TokenBucket, LeakyBucket:
		add((units+scale/2)/scale, at)
	case FixedWindow:
		add(units, after.Time)
	case SlidingWindow:
		add(units, after.Time+t.Window/2)
		add(after.Prev-before.Prev, after.Time-t.Window/2)
	default:
		known := map[int64]int64{}
		for _, e := range before.Log {
			known[e.Time] = int64(e.Units)
		}
		for _, e := range after.Log {
			add(int64(e.Units)-known[e.Time], e.Time)
		}
	}
	return taken
}
