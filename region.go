package headgate

import "time"

// Regions is how a rule counts if several regions, each with its own store, decide requests.
type Regions uint8

const (
	// EachRegion applies the limit to each region separately.
	EachRegion Regions = iota
	// SharedRegions applies the limit to all regions together: each region has a share of it.
	SharedRegions
	// HomeRegion counts each subject in one region, which decides for the others.
	HomeRegion
)

var regionsNames = []string{"each", "shared", "home"}

// String returns the name used in rule files: "shared".
func (r Regions) String() string { return nameOf(regionsNames, r) }

// MaxTransfer is how long units of a token bucket may be on their way from one region to another. Shares of a token bucket leave out
// what refills in this time, because the bucket that lends the units refills while they are on their way.
const MaxTransfer = 400 * time.Millisecond

// Fraction is a region's part of what regions share: the part of the whole between From/Of and To/Of, where Of is at most 10,000. The
// fractions of all regions partition the whole, so that their shares add up to it, whatever it is.
type Fraction struct{ From, To, Of int64 }

// Share returns the region's share of a limit, which is a limit of its own. The counts of all shares add up to the whole count, and so
// do the rates of buckets, unless a part of the rate cannot be counted exactly: it is then rounded down. The bursts of token buckets add
// up to the whole burst less what refills within MaxTransfer. Windows begin on the clock, so that they begin at the same time in all
// regions. A share without units has a Count of 0: it is invalid, and denies everything.
func (f Fraction) Share(whole Limit) Limit {
	l := whole
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		if l.Algorithm == TokenBucket {
			if l.Burst = f.of(max(0, whole.capacity()-whole.refill(MaxTransfer))); l.Burst == 0 {
				l.Count = 0
				return l
			}
		}
		if f.exactRate(&l); l.validate() != nil {
			l.Count, l.Window = f.roundedRate(&whole)
		}
		if l.validate() != nil {
			l.Count = 0
		}
		return l
	case FixedWindow, SlidingWindow:
		if l.Calendar == NoCalendar && l.Align == FromFirst {
			l.Align = OnClockSpread
		}
	}
	l.Count = f.of(l.Count)
	return l
}

// shareUnits returns the capacity of a share.
func shareUnits(share *Limit) int64 {
	if share.Count == 0 { // it denies everything, whatever its burst
		return 0
	}
	return share.capacity()
}

// of returns the fraction's part of n units.
func (f Fraction) of(n int64) int64 { return f.To*n/f.Of - f.From*n/f.Of }

// exactRate replaces a rate by the fraction's part of it. The limit may be invalid then.
func (f Fraction) exactRate(l *Limit) {
	count := l.Count * (f.To - f.From)
	common := gcd(count, f.Of)
	count /= common
	us := l.window() * (f.Of / common)
	if longest := maxWindow.Microseconds(); count > MaxCost || us > longest {
		common = gcd(count, us)
		if count, us = count/common, us/common; us > longest {
			count, us = 0, l.window()
		}
	}
	l.Count, l.Window = count, time.Duration(us)*time.Microsecond
}

// roundedRate returns the fraction's part of a rate, rounded down to a whole count in the longest window in which it can be counted.
func (f Fraction) roundedRate(whole *Limit) (int64, time.Duration) {
	for seconds := int64(maxWindow / time.Second); seconds > 0; seconds /= 2 {
		count := floorMulDiv(whole.Count*(f.To-f.From), seconds*1_000_000, whole.window()*f.Of)
		if count <= MaxCost && mulLessEqual(count, seconds, maxExact, 1) {
			return count, time.Duration(seconds) * time.Second
		}
	}
	return 0, whole.Window
}

// refill returns how many units a bucket refills in a span, rounded up.
func (l *Limit) refill(span time.Duration) int64 {
	return ceilMulDiv(l.Count, int64(span), int64(l.Window))
}
