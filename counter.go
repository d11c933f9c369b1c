package headgate

import (
	"encoding/base64"
	"encoding/binary"
)

// Counter names one counter of a subject: 48 bits of a hash. Make it with CounterOf.
type Counter uint64

// CounterOf is the counter of a rule's limit. A changed number keeps it; a changed algorithm, whose state would mean
// something else, starts a new one.
func CounterOf(rule, limit string, a Algorithm) Counter {
	sum := hashParts("counter", rule, limit, a.String())
	return Counter(binary.BigEndian.Uint64(sum[:8]) >> 16)
}

// String is the counter in 8 characters of base64url.
func (c Counter) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(c)<<16)
	return base64.RawURLEncoding.EncodeToString(b[:6])
}
