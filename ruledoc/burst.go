package ruledoc

import (
	"math/bits"

	"github.com/headgate/headgate"
)

// scaleBurst sets the burst of a rate that replaces another limit and has no burst of its own: it scales the replaced
// limit's burst with the rate. If 5000/minute replaces 1000/minute with a burst of 200, its burst is 1000, not 5000.
func scaleBurst(limit, replaced headgate.Limit) headgate.Limit {
	if !scales(limit) || !scales(replaced) || limit.Burst > 0 || replaced.Burst == 0 || replaced.Burst == replaced.Count {
		return limit
	}
	limit.Burst = scaled(replaced.Burst, limit, replaced)
	return limit
}

// scales reports whether a limit has a rate and a burst.
func scales(l headgate.Limit) bool {
	return l.Algorithm == headgate.TokenBucket && l.Calendar == headgate.NoCalendar && l.Count > 0 && l.Window > 0
}

// scaled returns burst × the rate of limit / the rate of replaced, rounded and clamped to 1 to MaxCost.
func scaled(burst int64, limit, replaced headgate.Limit) int64 {
	// Reduce the fraction first: windows in nanoseconds are large numbers.
	common := divisor(uint64(limit.Window), uint64(replaced.Window))
	part, whole := reduce(uint64(burst)*uint64(limit.Count), uint64(replaced.Count))
	span, per := uint64(replaced.Window)/common, uint64(limit.Window)/common
	part, per = reduce(part, per)
	span, whole = reduce(span, whole)
	high, low := bits.Mul64(part, span)
	over, under := bits.Mul64(whole, per)
	for over > 0 { // the result has at most 30 bits, so the dropped low bits do not change it
		high, low = high>>1, low>>1|high<<63
		over, under = over>>1, under>>1|over<<63
	}
	if high >= under {
		return headgate.MaxCost
	}
	quotient, rest := bits.Div64(high, low, under)
	if rest >= under-rest {
		quotient++
	}
	return int64(min(max(quotient, 1), uint64(headgate.MaxCost)))
}

// reduce divides both numbers by their greatest common divisor.
func reduce(a, b uint64) (uint64, uint64) {
	common := divisor(a, b)
	return a / common, b / common
}

// divisor returns the greatest common divisor.
func divisor(a, b uint64) uint64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
