package headgate

import "math/bits"

// The arithmetic is the one that redisstore's Lua repeats in doubles: whole numbers, no intermediate result above 2^53,
// and divisions only of numbers up to 2^52, below which floor(a/b) of two doubles cannot round up to the next integer.
const (
	scale    = 1_000_000             // a bucket's level is kept in millionths of a unit
	maxExact = 1 << 52               // what may be divided
	maxUsed  = 4_000_000_000         // units that a counter can hold; forced charges saturate here
	maxBack  = 2 * maxUsed           // more than any counter has to give back: two windows
	maxWait  = 1_000_000_000_000_000 // microseconds; longer waits are told as this one (31 years)
	maxTime  = 4_000_000_000_000_000 // microseconds since 1970: the year 2096
)

// mulDiv is a × b / c and what is left over, at most maxUsed × scale. The numbers must not be negative.
func mulDiv(a, b, c int64) (quotient, rest int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return maxUsed * scale, 0
	}
	q, r := bits.Div64(hi, lo, uint64(c))
	if q > maxUsed*scale {
		return maxUsed * scale, 0
	}
	return int64(q), int64(r)
}

// floorMulDiv is a × b / c rounded down.
func floorMulDiv(a, b, c int64) int64 {
	q, _ := mulDiv(a, b, c)
	return q
}

// ceilMulDiv is a × b / c rounded up, and at most maxWait.
func ceilMulDiv(a, b, c int64) int64 {
	q, rest := mulDiv(a, b, c)
	if rest > 0 {
		q++
	}
	return min(q, maxWait)
}

// atMost is a × b ≤ c × d, for numbers of any size.
func atMost(a, b, c, d int64) bool {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(b))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(d))
	return hi1 < hi2 || hi1 == hi2 && lo1 <= lo2
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// wholeSeconds rounds up: a state forgotten too early would be a fresh allowance.
func wholeSeconds(us int64) int64 { return (us + 999_999) / 1_000_000 }
