package identity

import (
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/pathreading"
)

// Path normalises the path of a request line, so that no spelling of it escapes a rule. Servers and routers do not agree on
// what a path means, hence several readings; a rule that would match one of them matches.
//
// The first is the most lenient one: percent-encoding is decoded until nothing is left to decode, a backslash is a
// slash, everything from "?", "#" or NUL on is cut, bytes that are not UTF-8, space at the end and ";parameters" are
// dropped, then empty and dot segments are resolved. Its result is "/" or has no slash at its end; normalised again it stays what it is.
//
// The others, up to 32 of them, are the value of headgate.OtherPath: those that differ of how real servers read a path, with
// "?" between them, which no reading has. There is the path as it was sent; decoded once, with nothing resolved; decoded
// once and resolved, with slashes merged or not; split before it is decoded, so that an encoded slash, backslash, "?", "#"
// or NUL stays in its segment, as %2F; and with parameters dropped, or backslashes taken for slashes.
//
//	/a/b                /a/b, and there is no other
//	/a/../b             /b          and  /a/../b
//	/users/a%2Fb?x=1    /users/a/b  and  /users/a%2Fb
//	/a/..;x=1/login     /login      and  /a/..;/login?/a/..;x=1/login?/a/..
//
// Of a path that is longer than 2048 bytes, segments longer than 64 bytes are replaced by their hash; if that is not
// enough, it is cut at the end of a segment. Other readings are shortened to 254 bytes: they keep their first segments, and
// how many there are. Upper and lower case are left alone.
func Path(raw string) (path, other string) {
	path, others := pathreading.Of(raw)
	return path, strings.Join(others, "?")
}

// target is the path as it stood on the request line: what a handler in front did to the URL does not change which rule
// applies. It is the part of the line that net/http takes for the path.
func target(r *http.Request) string {
	uri := r.RequestURI
	if uri == "" && r.URL != nil {
		return r.URL.EscapedPath() // not from a server
	}
	if r.Method == http.MethodConnect && !strings.HasPrefix(uri, "/") {
		return behindHost(uri) // net/http takes what is there for a path, also if there is a scheme
	}
	return withoutAuthority(uri)
}

// withoutAuthority is the path and query of a target, which may be in absolute form.
func withoutAuthority(uri string) string {
	if strings.HasPrefix(uri, "/") {
		return uri
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || scheme == "" || strings.ContainsAny(scheme, "/\\?#") {
		return uri
	}
	if host, ok := strings.CutPrefix(rest, "//"); ok {
		return behindHost(host)
	}
	if strings.HasPrefix(rest, "/") {
		return rest
	}
	return "/"
}

// behindHost is what follows a host: a path, or a query, or nothing.
func behindHost(uri string) string {
	if i := strings.IndexAny(uri, "/\\?#"); i >= 0 {
		return uri[i:]
	}
	return ""
}
