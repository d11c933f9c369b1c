package headgate

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
)

// Subject is who or what is being counted: 128 bits of a hash over names and values, so that nothing a client sends
// collides with another subject or makes keys grow. Make it with SubjectOf.
type Subject [16]byte

// SubjectOf hashes the parts under an unambiguous encoding: ("a|b", "c") and ("a", "b|c") are two subjects.
func SubjectOf(parts ...string) Subject {
	sum := hashParts("subject", parts...)
	return Subject(sum[:16])
}

// String is the subject as it stands in a store's keys: 22 characters of base64url.
func (s Subject) String() string { return base64.RawURLEncoding.EncodeToString(s[:]) }

// ParseSubject undoes Subject.String; false if the text is not such a one.
func ParseSubject(text string) (s Subject, ok bool) {
	if len(text) != base64.RawURLEncoding.EncodedLen(len(s)) {
		return s, false
	}
	n, err := base64.RawURLEncoding.Decode(s[:], []byte(text))
	return s, err == nil && n == len(s)
}

// subjects makes subjects. Those of one attribute are remembered, which takes a fifth of the time of a hash.
type subjects struct {
	secret []byte
	seed   maphash.Seed
	recent [recentSubjects]atomic.Pointer[recentSubject]
}

type recentSubject struct {
	name, value string
	subject     Subject
}

const (
	recentSubjects = 4_096
	// maxRecent is how long a value may be that is remembered.
	maxRecent = 128
	// displaces is how many others must come, on average, until one is forgotten: who comes once displaces hardly any.
	displaces = 8
)

func newSubjects(secret []byte) *subjects { return &subjects{secret: secret, seed: maphash.MakeSeed()} }

// of is the subject of these attributes, and one that is missing.
func (s *subjects) of(names []string, a Attributes) (subject Subject, missing string) {
	if len(names) != 1 {
		return subjectOf(s.secret, names, a)
	}
	name, value := names[0], a[names[0]]
	if value == "" || len(value) > maxRecent {
		return subjectOf(s.secret, names, a)
	}
	place := &s.recent[(maphash.String(s.seed, value)+uint64(len(name)))%recentSubjects]
	there := place.Load()
	if there != nil && there.value == value && there.name == name {
		return there.subject, ""
	}
	subject, _ = subjectOf(s.secret, names, a)
	if there == nil || rand.Uint32()%displaces == 0 { //nolint:gosec // nothing depends on it
		place.Store(&recentSubject{name, strings.Clone(value), subject})
	}
	return subject, ""
}

// subjectBy makes subjects from the attributes that rules count by.
type subjectBy struct {
	names []string // sorted
	// orders are the names with client replaced by each of clientIs, sorted again; nil if client is not among them. So a
	// rule by client and one by api_key count on the same subject.
	orders [][]string
	// path and method say whether they are among the names.
	path, method bool
}

func newSubjectBy(names []string) subjectBy {
	b := subjectBy{names: names, path: slices.Contains(names, attrPath), method: slices.Contains(names, attrMethod)}
	at := slices.Index(names, attrClient)
	if at < 0 {
		return b
	}
	for _, stand := range clientIs {
		order := slices.Clone(names)
		order[at] = stand
		slices.Sort(order)
		b.orders = append(b.orders, slices.Compact(order))
	}
	return b
}

// resolve is the names as they are for a request.
func (b *subjectBy) resolve(a Attributes) []string {
	if b.orders == nil {
		return b.names
	}
	for i, name := range clientIs {
		if a[name] != "" {
			return b.orders[i]
		}
	}
	return b.names
}

// subjectOf hashes names and values as SubjectOf does, which it equals where there is no secret. An attribute that is
// not there has an empty value, which none that is there has.
func subjectOf(secret []byte, names []string, a Attributes) (s Subject, missing string) {
	var buffer [256]byte
	b := append(buffer[:0], "subject"...)
	if len(secret) > 0 {
		b = append(buffer[:0], "keyed subject"...)
		b = binary.AppendUvarint(b, uint64(len(secret)))
		b = append(b, secret...)
	}
	for _, name := range names {
		value := a[name]
		if value == "" {
			missing = name
		}
		b = appendPart(b, name)
		b = appendPart(b, value)
	}
	sum := sha256.Sum256(b)
	return Subject(sum[:16]), missing
}

func hashParts(kind string, parts ...string) [sha256.Size]byte {
	var buffer [256]byte
	b := append(buffer[:0], kind...)
	for _, p := range parts {
		b = appendPart(b, p)
	}
	return sha256.Sum256(b)
}

func appendPart(b []byte, part string) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// fold makes 64 bits of a hash.
func fold(sum [sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(sum[:8]) }

// share is a number from 0 to 99 that depends on the salt and the subject alone, the same on every node.
func share(salt uint64, s Subject) int {
	x := salt ^ binary.BigEndian.Uint64(s[:8])
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	return int(x % 100)
}
