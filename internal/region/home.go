package region

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/headgate/headgate"
)

// Home returns the name of the region that counts a subject for all regions. It is the same in all regions that have the same members. A
// subject is at home in a region as often as the region's weight says, and moves only if the weight of its home falls or that of its new home
// rises, compared with the others.
func (s *Shares) Home(subject headgate.Subject) string { return s.members[s.home(subject)].Name }

// home returns the index of a subject's home, by weighted rendezvous hashing: each member draws how long it takes to claim the subject,
// and the first one is its home. A member draws -log2(u) / weight, where u is uniform in (0, 1]: the same whatever the others have.
func (s *Shares) home(subject headgate.Subject) int {
	high, low := binary.BigEndian.Uint64(subject[:8]), binary.BigEndian.Uint64(subject[8:])
	best, bestTime, bestWeight := 0, uint64(0), uint64(0)
	for i := range s.members {
		// The multiplication of both sides by both weights replaces the divisions.
		time, weight := negativeLog(mix(mix(high^s.seeds[i])+low)), uint64(s.members[i].Weight)
		if i == 0 || time*bestWeight < bestTime*weight {
			best, bestTime, bestWeight = i, time, weight
		}
	}
	return best
}

// seedOf returns the seed of a member's draws.
func seedOf(name string) uint64 {
	sum := sha256.Sum256([]byte("region home " + name))
	return binary.BigEndian.Uint64(sum[:])
}

// mix returns a number each bit of which depends on all bits of n; it is the finalizer of SplitMix64.
func mix(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

const logBits = 32

// negativeLog returns -log2(n / 2^64) with logBits binary places. It uses integers only: floating point may differ in the last bit between
// processors, and then two regions would disagree about a home.
func negativeLog(n uint64) uint64 {
	n |= 1
	zeros := bits.LeadingZeros64(n)
	whole, n := uint64(63-zeros), n<<zeros // n is from 1 to 2, in units of 2^-63
	fraction := uint64(0)
	for range logBits {
		high, low := bits.Mul64(n, n)
		fraction <<= 1
		if high>>63 == 1 { // the square is at least 2
			fraction |= 1
			n = high
		} else {
			n = high<<1 | low>>63
		}
	}
	return 64<<logBits - (whole<<logBits | fraction)
}
