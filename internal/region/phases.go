package region

import (
	"time"

	"github.com/headgate/headgate"
)

// phases are the weights that this region has to respect: of each table that it has accepted, until a newer one is in force for so long that
// no unit that any region has granted before counts any more.
//
// Why regions never exceed a limit, whatever is lost and whenever they learn of a table: let a window begin at a, and let n be the newest
// table that all regions acknowledged before a (each by its own store's clock, as windows are). Each region has accepted n, and
// uses at most its share of n until a newer table m is in force there, since G, and G + the window's length has passed. G is not before
// any acknowledgement of m, one of which is after a, so this is after the window's end: in the whole window each region uses at most its
// share of n, and these shares add up to the limit. For buckets see docs/adr/0021-changing-weights.md.
type phases struct {
	divisions []division // oldest first; the first is that of the config
	at        int64      // a time of the region's store, in microseconds since 1970, that has passed
	cache     shareCache // of this region
}

// division is a table that divides limits.
type division struct {
	// fractions[k][i] is the fraction of member i for subjects of class k. The remainder of a division goes to other members in each
	// class.
	fractions [][]headgate.Fraction
	since     int64 // as of the table
}

// divide returns the fractions of members.
func divide(members []Member) (fractions [][]headgate.Fraction) {
	total := int64(0)
	for _, m := range members {
		total += m.Weight
	}
	n := len(members)
	for k := range n {
		class, from := make([]headgate.Fraction, n), int64(0)
		for i := range n {
			at := (k + i) % n
			class[at] = headgate.Fraction{From: from, To: from + members[at].Weight, Of: total}
			from += members[at].Weight
		}
		fractions = append(fractions, class)
	}
	return fractions
}

func (p *phases) newest() *division { return &p.divisions[len(p.divisions)-1] }

// share returns the smallest of a member's shares by the divisions that it has to respect.
func (p *phases) share(class uint64, member int, whole *headgate.Limit) headgate.Limit {
	i := len(p.divisions) - 1
	narrowest := p.divisions[i].fractions[class][member]
	share := narrowest.Share(*whole)
	if i == 0 {
		return share
	}
	for wait := span(whole); i > 0 && !p.settled(i, wait); i-- {
		f := p.divisions[i-1].fractions[class][member]
		other := f.Share(*whole)
		burst, count := min(share.Burst, other.Burst), min(share.Count, other.Count)
		switch {
		case count == 0:
			share.Count, share.Burst = 0, 0
			return share
		case !bucket(whole):
			share.Count = count
		case narrower(f, narrowest):
			share, narrowest = other, f
			fallthrough
		default:
			share.Burst = burst
		}
	}
	return share
}

// settled reports whether division i is in force for so long that older ones have no effect.
func (p *phases) settled(i int, wait int64) bool {
	since := p.divisions[i].since
	return since > 0 && since+wait <= p.at
}

// narrower reports whether a fraction is less than another one.
func narrower(f, g headgate.Fraction) bool { return (f.To-f.From)*g.Of < (g.To-g.From)*f.Of }

func bucket(l *headgate.Limit) bool {
	return l.Algorithm == headgate.TokenBucket || l.Algorithm == headgate.LeakyBucket
}

// maxQueue is more than the longest delay of requests by a leaky bucket.
const maxQueue = time.Hour

// calendarSpans are the maximum lengths of calendar windows, in which clocks may be set back by an hour.
var calendarSpans = [...]time.Duration{
	headgate.Minute: time.Minute, headgate.Hour: 2 * time.Hour, headgate.Day: 25 * time.Hour,
	headgate.Week: 7*24*time.Hour + time.Hour, headgate.Month: 31*24*time.Hour + time.Hour,
}

// span returns how long, in microseconds, a unit that was granted counts at most. For buckets it is twice the time in which they refill: when
// a share grows, its bucket counts as having refilled at the new rate since it was last used.
func span(l *headgate.Limit) int64 {
	s := l.Window
	switch {
	case l.Algorithm == headgate.TokenBucket:
		s = 2 * refillTime(l)
	case l.Algorithm == headgate.LeakyBucket:
		s = 2*refillTime(l) + maxQueue
	case l.Calendar != headgate.NoCalendar:
		s = calendarSpans[l.Calendar]
	case l.Algorithm == headgate.SlidingWindow:
		s = 2 * l.Window
	}
	return s.Microseconds() + 1
}
