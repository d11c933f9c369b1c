package pathreading

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
)

// reader computes the readings of one path and reuses its buffers.
type reader struct {
	raw          string
	decoded, out []byte
}

// maxPasses caps the passes of the lenient reading. Each pass but the last makes the path shorter.
const maxPasses = 20

// read returns the reading of the path in a style. The lenient reading is repeated until nothing changes.
func (r *reader) read(s style) string {
	path := r.pass(r.raw, s)
	for passes := 1; s.lenient && passes < maxPasses; passes++ {
		again := r.pass(path, s)
		if again == path {
			break
		}
		path = again
	}
	return path
}

// pass reads raw once in a style.
func (r *reader) pass(raw string, s style) string {
	if s.slashes && strings.Contains(raw, "%") {
		raw = slashCodes.Replace(raw)
	}
	if s.dotParameters {
		raw = withoutDotParameters(raw)
	}
	if s.firstParameter {
		raw, _, _ = strings.Cut(raw, ";")
	}
	if s.leading {
		raw = "/" + strings.TrimLeft(raw, "/")
	}
	if s.host {
		raw = withoutHost(raw)
	}
	r.decode(raw, s)
	if s.lenient {
		if i := bytes.IndexAny(r.decoded, "?#\x00"); i >= 0 {
			r.decoded = r.decoded[:i]
		}
		r.decoded = bytes.TrimRightFunc(bytes.ToValidUTF8(r.decoded, nil), unicode.IsSpace)
	}
	r.resolve(s)
	return shorten(r.out)
}

var slashCodes = strings.NewReplacer("%2F", "/", "%2f", "/", "%5C", `\`, "%5c", `\`)

// withoutDotParameters replaces /..;x/ by /../.
func withoutDotParameters(raw string) string {
	if !strings.Contains(raw, ".;") {
		return raw
	}
	segments := strings.Split(raw, "/")
	for i, s := range segments {
		if name, _, _ := strings.Cut(s, ";"); name == "." || name == ".." {
			segments[i] = name
		}
	}
	return strings.Join(segments, "/")
}

// withoutHost removes two or more leading slashes or backslashes and the host after them.
func withoutHost(raw string) string {
	rest := strings.TrimLeft(raw, `/\`)
	if len(raw)-len(rest) < 2 {
		return raw
	}
	if i := strings.IndexAny(rest, `/\`); i >= 0 {
		return rest[i:]
	}
	return "/"
}

// decode decodes percent-encoding, once or at any depth, in one pass: a decoded character may complete another encoding.
func (r *reader) decode(raw string, s style) {
	out := r.decoded[:0]
	parameters := false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '\\' && s.backslash == before {
			c = '/'
		}
		if s.parameters == dropBefore {
			if parameters = c == ';' || parameters && c != '/'; parameters {
				continue
			}
		}
		switch {
		case c == '%' && s.decode != all && s.decode != splitAll:
			if code, ok := codeAt(raw, i); ok {
				out = s.append(out, code, true)
				i += 2
				continue
			}
			out = append(out, c)
		case c == '/':
			out = append(out, c)
		default:
			out = s.append(out, c, false)
		}
		if s.decode == all || s.decode == splitAll {
			out = s.complete(out)
		}
	}
	r.decoded = out
}

// append appends a character, encoded if the style requires it.
func (s *style) append(out []byte, c byte, decoded bool) []byte {
	const hex = "0123456789ABCDEF"
	switch s.decode {
	case all:
	case once:
		if c == '/' || c == '\\' && s.backslash == after || !special[c] {
			break
		}
		return append(out, '%', hex[c>>4], hex[c&15])
	case splitRaw:
		if !special[c] && (!decoded || !optional[c]) {
			break
		}
		return append(out, '%', hex[c>>4], hex[c&15])
	default:
		if !special[c] {
			break
		}
		return append(out, '%', hex[c>>4], hex[c&15])
	}
	return append(out, c)
}

// complete decodes the percent-encoding at the end of out, and any that it completes.
func (s *style) complete(out []byte) []byte {
	for n := len(out); n >= 3 && out[n-3] == '%'; n = len(out) {
		high, low := unhex(out[n-2]), unhex(out[n-1])
		if high > 15 || low > 15 {
			break
		}
		c := high<<4 | low
		out = s.append(out[:n-3], c, true)
		if s.decode == splitAll && special[c] {
			break
		}
	}
	return out
}

// codeAt decodes the percent-encoding at i.
func codeAt(s string, i int) (code byte, ok bool) {
	if i+2 >= len(s) {
		return 0, false
	}
	high, low := unhex(s[i+1]), unhex(s[i+2])
	return high<<4 | low, high <= 15 && low <= 15
}

// unhex returns the value of a hex digit, or 255.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// resolve splits the decoded path and joins the segments that the style keeps. It drops one trailing slash.
func (r *reader) resolve(s style) {
	separators := "/"
	if s.backslash == after {
		separators = `/\`
	}
	rest, more := r.decoded, true
	if len(rest) > 0 && strings.IndexByte(separators, rest[0]) >= 0 {
		rest = rest[1:]
	}
	out := r.out[:0]
	for more {
		segment := rest
		if i := bytes.IndexAny(rest, separators); i >= 0 {
			segment, rest = rest[:i], rest[i+1:]
		} else {
			more = false
		}
		name, kept := segment, false
		if s.parameters == dropAfter || s.parameters == dropNames {
			var found bool
			name, _, found = bytes.Cut(segment, []byte(";"))
			kept = found && s.parameters == dropNames
		}
		switch text := string(name); {
		case text != "" && text != "." && text != "..":
			out = append(append(out, '/'), name...)
		case kept:
			out = append(append(append(out, '/'), name...), ';')
		case text == "" && s.merge == before || text == "." && s.dots:
		case text == ".." && s.dots:
			out = out[:max(bytes.LastIndexByte(out, '/'), 0)]
		default:
			out = append(append(out, '/'), name...)
		}
	}
	if s.merge == after {
		out = slices.CompactFunc(out, func(a, b byte) bool { return a == '/' && b == '/' })
	}
	if n := len(out); n > 1 && out[n-1] == '/' && out[n-2] != '/' {
		out = out[:n-1]
	}
	if len(out) == 0 {
		out = append(out, '/')
	}
	r.out = out
}
