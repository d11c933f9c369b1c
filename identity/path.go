package identity

import (
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/pathreading"
)

// Path normalises the path of a request line, so that no spelling of it escapes a rule. Servers and routers interpret paths
// differently, so a path has several readings. A rule matches if it matches one of them.
//
// The first reading is the most lenient: percent-encoding is decoded until nothing is left to decode, a backslash becomes a slash,
// everything from "?", "#" or NUL on is cut, bytes that are not UTF-8, trailing space and ";parameters" are dropped, then empty and
// dot segments are resolved. The result is "/" or does not end in a slash. Normalising it again does not change it.
//
// The other readings, at most 32, are the value of headgate.OtherPath: the distinct readings of real servers, separated by "?",
// which no reading contains. They are the path as it was sent; decoded once, with nothing resolved; decoded once and resolved,
// with slashes merged or not; split before it is decoded, so that an encoded slash, backslash, "?", "#" or NUL stays in its
// segment, as %2F; and with parameters dropped, or backslashes replaced by slashes.
//
//	/a/b                /a/b, with no other reading
//	/a/../b             /b          and  /a/../b
//	/users/a%2Fb?x=1    /users/a/b  and  /users/a%2Fb
//	/a/..;x=1/login     /login      and  /a/..;/login?/a/..;x=1/login?/a/..
//
// If a path is longer than 2048 bytes, segments longer than 64 bytes are replaced by their hash; if it is still too long, it is cut
// at the end of a segment. Other readings are shortened to 254 bytes: they keep their first segments and the number of segments.
// Case does not change.
func Path(raw string) (path, other string) {
	path, others := pathreading.Of(raw)
	return path, strings.Join(others, "?")
}

// target returns the path of the request line, the same part that net/http parses as the path. An outer handler that rewrites the
// URL does not change which rules match.
func target(r *http.Request) string {
	uri := r.RequestURI
	if uri == "" && r.URL != nil {
		return r.URL.EscapedPath() // the request does not come from a server
	}
	if r.Method == http.MethodConnect && !strings.HasPrefix(uri, "/") {
		return afterHost(uri) // net/http treats the rest as a path, even after a scheme
	}
	return withoutAuthority(uri)
}

// withoutAuthority returns the path and query of a target, which may be in absolute form.
func withoutAuthority(uri string) string {
	if strings.HasPrefix(uri, "/") {
		return uri
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || scheme == "" || strings.ContainsAny(scheme, "/\\?#") {
		return uri
	}
	if host, ok := strings.CutPrefix(rest, "//"); ok {
		return afterHost(host)
	}
	if strings.HasPrefix(rest, "/") {
		return rest
	}
	return "/"
}

// afterHost returns the part after a host: a path, a query or nothing.
func afterHost(uri string) string {
	if i := strings.IndexAny(uri, "/\\?#"); i >= 0 {
		return uri[i:]
	}
	return ""
}
