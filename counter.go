package headgate

import (
	"encoding/base64"
	"encoding/binary"
)

// Counter identifies one counter of a subject by 48 bits of a hash. CounterOf returns it.
type Counter uint64

// CounterOf returns the counter of a rule's limit. Changing the numbers of the limit keeps the counter; changing the algorithm,
// whose state has another meaning, starts a new one.
func CounterOf(rule, limit string, a Algorithm) Counter {
	sum := hashParts("counter", rule, limit, a.String())
	return Counter(binary.BigEndian.Uint64(sum[:8]) >> 16)
}

// String returns the counter as 8 characters of base64url.
func (c Counter) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(c)<<16)
	return base64.RawURLEncoding.EncodeToString(b[:6])
}
