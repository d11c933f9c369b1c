package pathreading

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

const (
	// maxSegment is the maximum length of a segment in a path that is too long. 31 such segments fit, more than any template
	// that counts segments has.
	maxSegment = 64
	// maxSegments is the number of segments that matter: one more than a template can have.
	maxSegments = 33

	// HashPrefix is the prefix of every hash.
	HashPrefix = "sha256:"
	hashLength = len(HashPrefix) + 22
)

// Hash returns a short text that replaces a long one. Its 132 bits make collisions infeasible.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	var out [len(HashPrefix) + 43]byte
	n := copy(out[:], HashPrefix)
	base64.RawURLEncoding.Encode(out[n:], sum[:])
	return string(out[:hashLength])
}

// IsHash reports whether a text has the form of a hash.
func IsHash(text string) bool {
	if len(text) != hashLength || !strings.HasPrefix(text, HashPrefix) {
		return false
	}
	for i := len(HashPrefix); i < len(text); i++ {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// shorten returns a path of at most Max bytes. It replaces long segments by their hash. If the path is still too long, it is cut at
// the end of a segment.
func shorten(path []byte) string {
	if len(path) <= Max {
		return string(path)
	}
	var b strings.Builder
	for segment := range strings.SplitSeq(string(path[1:]), "/") {
		if len(segment) > maxSegment {
			segment = Hash(segment)
		}
		if b.Len()+1+len(segment) > Max {
			break
		}
		b.WriteByte('/')
		b.WriteString(segment)
	}
	return b.String()
}

// shortenOther returns a path of at most maxOther bytes with the same number of segments, up to maxSegments. It replaces segments
// from the end, first by their hash and then by a tilde, because clients cannot choose the first segments of a template.
func shortenOther(path string) string {
	if len(path) <= maxOther {
		return path
	}
	segments := strings.Split(path[1:], "/")
	segments = segments[:min(len(segments), maxSegments)]
	length := 0
	for i, s := range segments {
		if len(s) > maxSegment {
			segments[i] = Hash(s)
		}
		length += 1 + len(segments[i])
	}
	for i := len(segments) - 1; i >= 0 && length > maxOther; i-- {
		if n := len(segments[i]); n > hashLength {
			segments[i] = Hash(segments[i])
			length += hashLength - n
		}
	}
	for i := len(segments) - 1; i >= 0 && length > maxOther; i-- {
		if n := len(segments[i]); n > 1 {
			segments[i] = "~"
			length += 1 - n
		}
	}
	return "/" + strings.Join(segments, "/")
}
