// Package pathreading computes how servers and routers interpret the path of a request line. They disagree: is %2F a slash, does
// "..;" mean the parent, are two slashes one? Each interpretation is a reading. The package does not know rules or requests.
package pathreading

import (
	"slices"
	"strings"
)

// Bounds of readings.
const (
	// Max is the maximum length of the first reading.
	Max = 2048
	// maxOther is the maximum length of another reading. All of them fit into 8 KiB, separators included.
	maxOther = 254
	// MaxOthers is the maximum number of other readings.
	MaxOthers = 2 * styles
)

// Of returns the readings of a path, which may be followed by a query.
//
// The first reading is the most lenient: percent-encoding is decoded until nothing is left to decode, a backslash becomes a slash,
// everything from "#", NUL or an encoded "?" on is cut, bytes that are not UTF-8, trailing space and ";parameters" are dropped, then
// empty and dot segments are resolved. Reading the result again does not change it.
//
// The other readings are the distinct readings of real servers: see the list of styles. In them a "?", "#", NUL, slash or backslash
// within a segment is encoded. A reading longer than maxOther keeps its first segments and its number of segments up to 33; later
// segments are replaced.
func Of(raw string) (path string, others []string) {
	if i := strings.IndexByte(raw, '?'); i >= 0 {
		raw = raw[:i]
	}
	if isNormal(raw) {
		return raw, nil
	}
	r := reader{raw: raw}
	path = r.read(lenient)
	if isPlain(raw) && path == r.read(decodedOnce) {
		return path, nil
	}
	others = r.all(nil, path)
	// Some servers treat the rest as a fragment, others as a part of the path.
	if i := strings.IndexByte(raw, '#'); i >= 0 {
		r.raw = raw[:i]
		others = r.all(others, path)
	}
	return path, others
}

// Lenient returns the first reading.
func Lenient(raw string) string {
	if isNormal(raw) {
		return raw
	}
	r := reader{raw: raw}
	return r.read(lenient)
}

// all appends the readings in all styles that are neither path nor in others.
func (r *reader) all(others []string, path string) []string {
	for _, s := range list {
		if other := r.read(s); other != path {
			if other = shortenOther(other); !slices.Contains(others, other) {
				others = append(others, other)
			}
		}
	}
	return others
}

// isNormal reports whether a path is normal. It is a fast check with false negatives.
func isNormal(p string) bool {
	if p == "" || p[0] != '/' || len(p) > Max || len(p) > 1 && p[len(p)-1] == '/' {
		return false
	}
	for i := range len(p) {
		switch c := p[i]; {
		case c <= ' ' || c > '~' || c == '%' || c == '\\' || c == ';' || c == '#':
			return false
		case c == '/' && emptyOrDots(p, i):
			return false
		}
	}
	return true
}

// emptyOrDots reports whether the segment after the slash at i is a dot segment, or empty and not the last.
func emptyOrDots(p string, i int) bool {
	if i+1 == len(p) || p[i+1] != '/' && p[i+1] != '.' {
		return false
	}
	segment, _, more := strings.Cut(p[i+1:], "/")
	return segment == "" && more || segment == "." || segment == ".."
}

// isPlain reports whether a path has only one reading, although it is not normal: it ends in a slash, it is long, or it has
// percent-encodings, all of them of characters that must be encoded and have no special meaning. It does not check trailing space
// and invalid UTF-8.
func isPlain(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\', ';', '#', 0:
			return false
		case '/':
			if emptyOrDots(p, i) {
				return false
			}
		case '%':
			code, ok := codeAt(p, i)
			if !ok || code == '%' || optional[code] || special[code] {
				return false
			}
			i += 2
		}
	}
	return true
}
