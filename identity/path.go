package identity

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/headgate/headgate"
)

// maxSegment is how long a segment of a path may be if the path is longer than MaxPath. It leaves room for 31 segments,
// more than a template has that counts them.
const maxSegment = 64

// Path normalises the path of a request line, so that no spelling of it escapes a rule. Routers do not agree on what a
// path means, hence two readings; a rule that would match either matches.
//
// The first is the most lenient one: percent-encoding is decoded until nothing is left to decode, a backslash is a
// slash, everything from "?", "#" or NUL on is cut, ";parameters" are dropped, then empty and dot segments are
// resolved. Its result is "/" or has no slash at its end; normalised again it stays what it is.
//
// The second, empty if it is the same, is that of a router that splits a path before it decodes: a slash, backslash,
// "?", "#" or NUL that was encoded stays in its segment, as %2F; so does a backslash. A segment is a dot segment only
// without parameters; one that would be empty or dots without them keeps a ";".
//
//	/a/../b//c/         /b/c
//	/users/a%252Fb?x=1  /users/a/b  and  /users/a%2Fb
//	/a/..;x=1/login     /login      and  /a/..;/login
//
// Of a path that is longer than MaxPath, segments longer than 64 bytes are replaced by their hash; if that is not
// enough, it is cut at the end of a segment. Upper and lower case are left alone.
func Path(raw string) (path, other string) {
	if i := strings.IndexByte(raw, '?'); i >= 0 {
		raw = raw[:i]
	}
	if i := strings.IndexByte(raw, '#'); i >= 0 {
		raw = raw[:i]
	}
	if isNormal(raw) {
		return raw, ""
	}
	lenient := decode(raw, false)
	if i := bytes.IndexAny(lenient, "?#\x00"); i >= 0 {
		lenient = lenient[:i]
	}
	path, other = resolve(lenient, false), resolve(decode(raw, true), true)
	if other == path {
		other = ""
	}
	return path, other
}

// isNormal is quick, and may say no of a path that is normal.
func isNormal(p string) bool {
	if p == "" || p[0] != '/' || len(p) > MaxPath || len(p) > 1 && p[len(p)-1] == '/' {
		return false
	}
	for i := range len(p) {
		switch p[i] {
		case '%', '\\', ';', 0:
			return false
		case '/', '.':
			if i > 0 && p[i-1] == '/' {
				return false
			}
		}
	}
	return true
}

// decode undoes percent-encoding at any depth, in one pass: what was decoded last may complete another code. With keep,
// characters that would end a segment or the path come out encoded once.
func decode(raw string, keep bool) []byte {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(raw))
	for i := range len(raw) {
		c := raw[i]
		if keep && (c == '\\' || c == 0) {
			out = append(out, '%', hex[c>>4], hex[c&15])
			continue
		}
		out = append(out, c)
		for n := len(out); n >= 3 && out[n-3] == '%'; n = len(out) {
			high, low := unhex(out[n-2]), unhex(out[n-1])
			if high > 15 || low > 15 {
				break
			}
			c := high<<4 | low
			if keep && strings.IndexByte("/\\?#\x00", c) >= 0 {
				out = append(out[:n-3], '%', hex[high], hex[low])
				break
			}
			out = append(out[:n-3], c)
		}
	}
	return out
}

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

// resolve drops parameters, empty segments and dot segments.
func resolve(decoded []byte, keep bool) string {
	separators := "/\\"
	if keep {
		separators = "/"
	}
	out := make([]byte, 0, len(decoded)+1)
	for len(decoded) > 0 {
		segment := decoded
		if i := bytes.IndexAny(decoded, separators); i >= 0 {
			segment, decoded = decoded[:i], decoded[i+1:]
		} else {
			decoded = nil
		}
		name, _, parameters := bytes.Cut(segment, []byte(";"))
		dots := string(name)
		switch {
		case dots != "" && dots != "." && dots != "..":
			out = append(append(out, '/'), name...)
		case parameters && keep:
			out = append(append(append(out, '/'), name...), ';')
		case dots == "..":
			out = out[:max(bytes.LastIndexByte(out, '/'), 0)]
		}
	}
	switch {
	case len(out) == 0:
		return "/"
	case len(out) > MaxPath:
		return shorten(string(out))
	}
	return string(out)
}

func shorten(p string) string {
	var b strings.Builder
	for segment := range strings.SplitSeq(p[1:], "/") {
		if len(segment) > maxSegment {
			segment = headgate.HashKey(segment)
		}
		if b.Len()+1+len(segment) > MaxPath {
			break
		}
		b.WriteByte('/')
		b.WriteString(segment)
	}
	return b.String()
}

// target is the path as it stood on the request line: what a handler in front did to the URL does not change which rule
// applies.
func target(r *http.Request) string {
	uri := r.RequestURI
	if uri == "" && r.URL != nil {
		return r.URL.EscapedPath() // not from a server
	}
	if strings.HasPrefix(uri, "/") {
		return uri
	}
	if r.Method == http.MethodConnect {
		return "/" // what is there is a host
	}
	if scheme, rest, ok := strings.Cut(uri, "://"); ok && !strings.ContainsAny(scheme, "/\\?#") {
		if i := strings.IndexAny(rest, "/\\?#"); i >= 0 {
			return rest[i:]
		}
		return "/"
	}
	return uri
}
