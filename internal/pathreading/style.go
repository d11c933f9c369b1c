package pathreading

// style is how a server makes a path of what is on the request line. Steps are taken in the order of the fields.
type style struct {
	// slashes decodes slashes and backslashes, before anything else.
	slashes bool
	// dotParameters drops what follows a semicolon in a segment of dots, if the dots are not encoded.
	dotParameters bool
	// leading makes one slash of those at the front.
	leading bool
	// firstParameter ends the path at the first semicolon, whatever follows.
	firstParameter bool
	// host takes what follows two slashes at the front for a host.
	host bool
	// backslash takes a backslash for a slash: never, before decoding or after.
	backslash when
	// parameters drops what follows a semicolon in a segment.
	parameters parameters
	// decode is what becomes of percent-encoding.
	decode decoding
	// lenient ends the path at "?", "#" or NUL once it is decoded, drops bytes that are not UTF-8, as Bottle does, and space at the
	// end, which a "$" in a regular expression of Python's does not see.
	lenient bool
	// dots resolves dot segments.
	dots bool
	// merge drops empty segments: never, before dots are resolved or after. Two dots remove an empty segment that is there.
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
	dropBefore                // decoding: /..;x/ leads upwards, /..%3Bx/ does not
	dropAfter                 // decoding: both do
	dropNames                 // after decoding, but of a segment that would be empty or dots a ";" stays
)

type decoding uint8

const (
	// splitRaw leaves codes of characters that need none, which makes such a segment another one than the decoded.
	splitRaw decoding = iota
	// splitOnce splits the path, then decodes its segments.
	splitOnce
	// splitAll decodes them until nothing is left.
	splitAll
	// once decodes the path, then splits it.
	once
	// all decodes it until nothing is left.
	all
)

// lenient is the style of the first reading. It stands for servers behind each other of which each decodes.
var lenient = style{backslash: after, parameters: dropAfter, decode: all, lenient: true, merge: before, dots: true}

const styles = 16

// decodedOnce is the style of whoever decodes a path and does nothing else: gin, Echo, gorilla/mux, Django, all that look at URL.Path
// of net/http.
var decodedOnce = style{decode: once}

// list has the styles of real servers. The first row is the lenient style of those that split before they decode.
var list = [styles]style{
	{parameters: dropNames, decode: splitAll, merge: before, dots: true},
	decodedOnce,
	{decode: splitOnce}, // ServeMux of what it does not clean, which is %2e%2e
	{decode: splitRaw},  // chi, Express, HAProxy, Envoy without normalize_path
	{decode: once, merge: before, dots: true},                              // nginx, Apache, Caddy, http.FileServer
	{decode: once, dots: true},                                             // nginx with merge_slashes off
	{decode: splitOnce, merge: before, dots: true},                         // ASP.NET Core
	{parameters: dropBefore, decode: splitOnce, merge: before, dots: true}, // Tomcat
	{parameters: dropBefore, decode: once, merge: before, dots: true},      // Jetty, and Tomcat that decodes slashes
	{backslash: after, decode: once, merge: before, dots: true},            // IIS
	{host: true, backslash: before, decode: splitOnce, dots: true},         // URL of browsers and Node.js
	{decode: splitRaw, merge: before, dots: true},                          // chi behind CleanPath, gin with UseRawPath and RemoveExtraSlash
	{firstParameter: true, decode: once},                                   // Fastify
	{leading: true, decode: once},                                          // Flask and Django on waitress or gunicorn
	// Envoy with normalize_path, and with slashes decoded. Empty segments that it leaves match no route that others would not.
	{dotParameters: true, backslash: before, decode: splitOnce, dots: true, merge: after},
	{slashes: true, dotParameters: true, backslash: before, decode: splitOnce, dots: true, merge: after},
}

// special are the characters that could end a segment or the path: encoded in readings that have them within a segment.
var special = [256]bool{'/': true, '\\': true, '?': true, '#': true, 0: true}

// optional are the characters that a path may have without being encoded, but for the slash.
var optional = func() (set [256]bool) {
	for c := range set {
		set[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	}
	for _, c := range []byte("-._~!$&'()*+,;=:@") {
		set[c] = true
	}
	return set
}()
