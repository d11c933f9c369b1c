// Package pathreading knows how servers and routers read the path of a request line. They do not agree: is %2F a slash, does
// "..;" lead upwards, are two slashes one? It knows nothing of rules, nor of requests.
package pathreading

import (
	"slices"
	"strings"
)

// Bounds of readings.
const (
	// Max is the length of the longest first reading.
	Max = 2048
	// maxOther is the length of the longest other reading. All of them fit into 8 KiB, separators included.
	maxOther = 254
	// MaxOthers is how many other readings a path has at most.
	MaxOthers = 2 * styles
)

// Of returns the readings of a path, which may have a query behind it.
//
// The first is the most lenient one: percent-encoding is decoded until nothing is left to decode, a backslash is a slash,
// everything from "#", NUL or an encoded "?" on is cut, bytes that are not UTF-8, space at the end and ";parameters" are dropped,
// then empty and dot segments are resolved. Read again it stays what it is.
//
// The others are those of real servers, as far as they differ: see the list of styles. In them a "?", "#", NUL or backslash
// that is part of a segment is encoded, and so is a slash. One that is longer than maxOther keeps its first segments, and
// its number of segments up to 33; later ones are replaced.
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
	// Some servers take what follows for a fragment, others for a part of the path.
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

// all appends the readings that are neither path nor among others.
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

// isNormal is quick, and may say no of a path that is normal.
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

// emptyOrDots reports whether the segment behind the slash at i is a dot segment, or empty but not the last.
func emptyOrDots(p string, i int) bool {
	if i+1 == len(p) || p[i+1] != '/' && p[i+1] != '.' {
		return false
	}
	segment, _, more := strings.Cut(p[i+1:], "/")
	return segment == "" && more || segment == "." || segment == ".."
}

// isPlain reports whether a path has one reading only, although it is not normal: it ends with a slash, it is long, or it
// has codes, all of them of characters that must be encoded and mean nothing. Space at the end and what is not UTF-8 is not looked at.
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
