package ruledoc

import (
	"math/bits"

	"github.com/headgate/headgate"
)

// scaleBurst completes a rate that stands in the place of another and names no burst: its burst lasts as long as that of
// own does. In the place of 1000/minute with a burst of 200, 5000/minute has one of 1000, and not 5000.
func scaleBurst(limit, own headgate.Limit) headgate.Limit {
	if !scales(limit) || !scales(own) || limit.Burst > 0 || own.Burst == 0 || own.Burst == own.Count {
		return limit
	}
	limit.Burst = scaled(own.Burst, limit, own)
	return limit
}

// scales reports whether a limit has a rate and a burst.
func scales(l headgate.Limit) bool {
	return l.Algorithm == headgate.TokenBucket && l.Calendar == headgate.NoCalendar && l.Count > 0 && l.Window > 0
}

// scaled returns burst × the rate of limit / the rate of own, rounded, from 1 to the most that can be counted.
func scaled(burst int64, limit, own headgate.Limit) int64 {
	// Windows are long in nanoseconds; what they have in common does not matter.
	common := divisor(uint64(limit.Window), uint64(own.Window))
	part, whole := reduce(uint64(burst)*uint64(limit.Count), uint64(own.Count))
	span, per := uint64(own.Window)/common, uint64(limit.Window)/common
	part, per = reduce(part, per)
	span, whole = reduce(span, whole)
	high, low := bits.Mul64(part, span)
	over, under := bits.Mul64(whole, per)
	for over > 0 { // the result has 30 bits at most: none of those that are dropped matters to it
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
