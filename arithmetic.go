package headgate

import "math/bits"

// redisstore's Lua repeats this arithmetic in doubles: whole numbers, no intermediate result above 2^53, and divisions only of
// numbers up to 2^52, below which floor(a/b) of two doubles cannot round up to the next integer.
const (
	scale    = 1_000_000             // a bucket's level is in millionths of a unit
	maxExact = 1 << 52               // largest dividend
	maxUsed  = 4_000_000_000         // largest number of used units of a counter; forced charges saturate here
	maxBack  = 2 * maxUsed           // more than any counter can give back: two windows
	maxWait  = 1_000_000_000_000_000 // microseconds; longer waits are reported as this one (31 years)
	maxTime  = 4_000_000_000_000_000 // microseconds since 1970: the year 2096
)

// mulDiv returns a × b / c, at most maxUsed × scale, and the remainder. The arguments must not be negative.
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

// floorMulDiv returns a × b / c rounded down.
func floorMulDiv(a, b, c int64) int64 {
	q, _ := mulDiv(a, b, c)
	return q
}

// ceilMulDiv returns a × b / c rounded up, at most maxWait.
func ceilMulDiv(a, b, c int64) int64 {
	q, rest := mulDiv(a, b, c)
	if rest > 0 {
		q++
	}
	return min(q, maxWait)
}

// mulLessEqual reports whether a × b ≤ c × d, without overflow. The arguments must not be negative.
func mulLessEqual(a, b, c, d int64) bool {
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

// wholeSeconds rounds microseconds up to seconds: a state that is dropped too early would grant a fresh allowance.
func wholeSeconds(us int64) int64 { return (us + 999_999) / 1_000_000 }
