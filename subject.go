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

// Subject identifies who or what is counted by 128 bits of a hash over names and values, so that no value that a client sends can
// collide with another subject or enlarge keys. SubjectOf returns it.
type Subject [16]byte

// SubjectOf returns the hash of the parts in an unambiguous encoding: ("a|b", "c") and ("a", "b|c") are different subjects.
func SubjectOf(parts ...string) Subject {
	sum := hashParts("subject", parts...)
	return Subject(sum[:16])
}

// String returns the subject as in a store's keys: 22 characters of base64url.
func (s Subject) String() string { return base64.RawURLEncoding.EncodeToString(s[:]) }

// ParseSubject parses the result of Subject.String. It returns false if the text is not a subject.
func ParseSubject(text string) (s Subject, ok bool) {
	if len(text) != base64.RawURLEncoding.EncodedLen(len(s)) {
		return s, false
	}
	n, err := base64.RawURLEncoding.Decode(s[:], []byte(text))
	return s, err == nil && n == len(s)
}

// subjects computes subjects. It caches those of a single attribute, which takes a fifth of the time of a hash.
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
	// maxRecent is the largest length of a value that is cached.
	maxRecent = 128
	// replaceOdds is the average number of other values until a cached one is replaced, so that values that occur once replace few.
	replaceOdds = 8
)

func newSubjects(secret []byte) *subjects { return &subjects{secret: secret, seed: maphash.MakeSeed()} }

// of returns the subject of the named attributes, and the name of one that is missing.
func (s *subjects) of(names []string, a Attributes) (subject Subject, missing string) {
	if len(names) != 1 {
		return subjectOf(s.secret, names, a)
	}
	name, value := names[0], a[names[0]]
	if value == "" || len(value) > maxRecent {
		return subjectOf(s.secret, names, a)
	}
	slot := &s.recent[(maphash.String(s.seed, value)+uint64(len(name)))%recentSubjects]
	cached := slot.Load()
	if cached != nil && cached.value == value && cached.name == name {
		return cached.subject, ""
	}
	subject, _ = subjectOf(s.secret, names, a)
	if cached == nil || rand.Uint32()%replaceOdds == 0 { //nolint:gosec // it only affects the cache
		slot.Store(&recentSubject{name, strings.Clone(value), subject})
	}
	return subject, ""
}

// subjectBy is a set of attributes that rules count by.
type subjectBy struct {
	names []string // sorted
	// orders are the names with client replaced by each of clientSources, sorted again; nil without client. So a rule by client
	// and a rule by api_key count on the same subject.
	orders [][]string
	// path and method are whether they are among the names.
	path, method bool
}

func newSubjectBy(names []string) subjectBy {
	b := subjectBy{names: names, path: slices.Contains(names, attrPath), method: slices.Contains(names, attrMethod)}
	at := slices.Index(names, attrClient)
	if at < 0 {
		return b
	}
	for _, source := range clientSources {
		order := slices.Clone(names)
		order[at] = source
		slices.Sort(order)
		b.orders = append(b.orders, slices.Compact(order))
	}
	return b
}

// resolve returns the names for a request, with client replaced by the attribute that it is derived from.
func (b *subjectBy) resolve(a Attributes) []string {
	if b.orders == nil {
		return b.names
	}
	for i, name := range clientSources {
		if a[name] != "" {
			return b.orders[i]
		}
	}
	return b.names
}

// subjectOf returns the subject of names and values, and the name of a missing attribute. Without a secret it equals SubjectOf. A
// missing attribute is hashed as an empty value, which a present attribute cannot have.
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

// hashParts hashes a kind and parts in an unambiguous encoding.
func hashParts(kind string, parts ...string) [sha256.Size]byte {
	var buffer [256]byte
	b := append(buffer[:0], kind...)
	for _, p := range parts {
		b = appendPart(b, p)
	}
	return sha256.Sum256(b)
}

// appendPart appends the length of a part and the part.
func appendPart(b []byte, part string) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// fold returns the first 64 bits of a hash.
func fold(sum [sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(sum[:8]) }

// share returns a number from 0 to 99 that depends only on the salt and the subject, so that it is the same on every node.
func share(salt uint64, s Subject) int {
	x := salt ^ binary.BigEndian.Uint64(s[:8])
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	return int(x % 100)
}
