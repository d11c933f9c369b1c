package pathreading

// style describes how a server interprets the path of a request line. The steps are applied in the order of the fields.
type style struct {
	// slashes decodes slashes and backslashes first.
	slashes bool
	// dotParameters drops the text after a semicolon in a dot segment, if the dots are not encoded.
	dotParameters bool
	// leading merges leading slashes.
	leading bool
	// firstParameter ends the path at the first semicolon.
	firstParameter bool
	// host treats the text after two leading slashes as a host.
	host bool
	// backslash treats a backslash as a slash: never, before decoding or after.
	backslash when
	// parameters drops the text after a semicolon in a segment.
	parameters parameters
	// decode determines how percent-encoding is decoded.
	decode decoding
	// lenient ends the decoded path at "?", "#" or NUL, drops bytes that are not UTF-8, as Bottle does, and trailing space, which "$"
	// in a Python regular expression ignores.
	lenient bool
	// dots resolves dot segments.
	dots bool
	// merge drops empty segments: never, before dot segments are resolved or after. Two dots remove a remaining empty segment.
	merge when
}

type when uint8

const (
	never when = iota
	before
	after
)

type parameters uint8

const (
	keepParameters parameters = iota
	dropBefore                // before decoding: /..;x/ means the parent, /..%3Bx/ does not
	dropAfter                 // after decoding: both mean the parent
	dropNames                 // after decoding, but a segment that would become empty or dots keeps its ";"
)

type decoding uint8

const (
	// splitRaw keeps unnecessary percent-encodings, so that such a segment differs from the decoded one.
	splitRaw decoding = iota
	// splitOnce splits the path, then decodes its segments.
	splitOnce
	// splitAll splits the path, then decodes its segments until nothing is left.
	splitAll
	// once decodes the path, then splits it.
	once
	// all decodes the path until nothing is left, then splits it.
	all
)

// lenient is the style of the first reading. It represents a chain of servers, each of which decodes.
var lenient = style{backslash: after, parameters: dropAfter, decode: all, lenient: true, merge: before, dots: true}

const styles = 16

// decodedOnce is the style of routers that only decode a path: gin, Echo, gorilla/mux, Django, and all that use URL.Path of net/http.
var decodedOnce = style{decode: once}

// list contains the styles of real servers. The first row is the lenient style of servers that split before they decode.
var list = [styles]style{
	{parameters: dropNames, decode: splitAll, merge: before, dots: true},
	decodedOnce,
	{decode: splitOnce}, // ServeMux for paths that it does not clean, such as %2e%2e
	{decode: splitRaw},  // chi, Express, HAProxy, Envoy without normalize_path
	{decode: once, merge: before, dots: true},                              // nginx, Apache, Caddy, http.FileServer
	{decode: once, dots: true},                                             // nginx with merge_slashes off
	{decode: splitOnce, merge: before, dots: true},                         // ASP.NET Core
	{parameters: dropBefore, decode: splitOnce, merge: before, dots: true}, // Tomcat
	{parameters: dropBefore, decode: once, merge: before, dots: true},      // Jetty, and Tomcat with decoded slashes
	{backslash: after, decode: once, merge: before, dots: true},            // IIS
	{host: true, backslash: before, decode: splitOnce, dots: true},         // URL of browsers and Node.js
	{decode: splitRaw, merge: before, dots: true},                          // chi behind CleanPath, gin with UseRawPath and RemoveExtraSlash
	{firstParameter: true, decode: once},                                   // Fastify
	{leading: true, decode: once},                                          // Flask and Django on waitress or gunicorn
	// Envoy with normalize_path, without and with decoded slashes. The empty segments that it keeps match no additional routes.
	{dotParameters: true, backslash: before, decode: splitOnce, dots: true, merge: after},
	{slashes: true, dotParameters: true, backslash: before, decode: splitOnce, dots: true, merge: after},
}

// special are the characters that could end a segment or the path. Within a segment they are encoded.
var special = [256]bool{'/': true, '\\': true, '?': true, '#': true, 0: true}

// optional are the characters, except the slash, that need no encoding in a path.
var optional = func() (set [256]bool) {
	for c := range set {
		set[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	}
	for _, c := range []byte("-._~!$&'()*+,;=:@") {
		set[c] = true
	}
	return set
}()
