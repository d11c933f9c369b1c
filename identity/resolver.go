package identity

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelog"
)

// Options configures which proxies, keys and tokens a Resolver trusts. The zero value trusts none: a request then has only the
// address of its peer and attributes of the request itself, such as path, method and host.
type Options struct {
	// TrustedProxies are the networks of the proxies whose forwarded header and identifying headers are trusted. Such a proxy
	// must remove those headers from the requests of clients. The default is none. If you do not know the addresses of your
	// proxies, use TrustedHops instead.
	TrustedProxies []netip.Prefix
	// TrustedHops is the number of proxies that a request passes, including the peer, for proxies whose addresses are not known
	// in advance. It trusts every peer, so only the proxy may be able to connect. The default is 0, which means TrustedProxies.
	TrustedHops int
	// TrustUnix trusts peers that have no IP address, as on a Unix socket. The default is false.
	TrustUnix bool
	// ForwardedHeader is the header that the proxies write: XForwardedFor or Forwarded. The default is XForwardedFor. The other
	// header is never read, because a proxy that writes one passes on the other as clients sent it.
	ForwardedHeader string
	// IPv6Prefix is the prefix length that identifies one IPv6 client. The default (0) is 64, the usual size of a customer's
	// network.
	IPv6Prefix int

	// APIKey is the location of API keys. The default is none. Set it only if requests with a made-up key fail: otherwise a
	// client could pose as any number of clients.
	APIKey APIKey
	// JWT configures which tokens are trusted. The default is none.
	JWT JWT

	// User, ServiceAccount, Tenant, Tier and Region are the sources of these attributes: "claim.x" of a trusted token, or
	// "header.x" of a trusted proxy. The first source that a request has is used. The default for User is claim.sub (if JWT is
	// set), then header.x-user-id. The others have no default.
	User, ServiceAccount, Tenant, Tier, Region []string

	// Log receives warnings about proxy headers from untrusted peers and about keys that cannot be read. The default is
	// slog.Default().
	Log *slog.Logger
}

// APIKey is the location of API keys. If both fields are set, a key may be in either place. All requests with two different keys,
// which may be joined by a comma, are counted as one client.
type APIKey struct {
	// Header is the name of a header, such as X-API-Key. In Authorization, the key follows "Bearer". The default is none.
	Header string
	// Query is the name of a query parameter. The default is none.
	Query string
}

// Resolver resolves requests to attributes. Use Attributes for net/http, Metadata for gRPC, and Normalize for attributes that
// another program took from a request. It is safe for concurrent use.
type Resolver struct {
	proxies   *proxies
	log       *slog.Logger
	untrusted ratelog.Limiter // peers that sent a proxy's header, by address
	tokens    *Tokens         // nil if no tokens are trusted
	keyField  field           // empty if keys are not read from a header
	keyQuery  string
	sources   []namedSource
	secrets   []string // headers whose values are replaced by their hash
}

// namedSource is one source of an attribute. Either claim or header is set.
type namedSource struct {
	name   string
	claim  string
	header field
}

const authorization = "Authorization"

var (
	userAgentField = newField("User-Agent")
	cookieField    = newField("Cookie")
	authorityField = field{lower: ":authority"}
)

// New returns a Resolver. Keys at a URL are fetched in the background; no token is trusted until they have arrived. Close the
// Resolver when it is no longer needed.
func New(o Options) (*Resolver, error) {
	r := &Resolver{keyQuery: o.APIKey.Query, log: o.Log, untrusted: ratelog.Limiter{Every: 24 * time.Hour}}
	if r.log == nil {
		r.log = slog.Default()
	}
	var err error
	if r.proxies, err = newProxies(o); err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	if o.User == nil {
		o.User = []string{"header.x-user-id"}
		if !o.JWT.isZero() {
			o.User = []string{"claim.sub", "header.x-user-id"}
		}
	}
	if r.sources, err = o.parseSources(); err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	if o.APIKey.Header != "" {
		r.keyField = newField(o.APIKey.Header)
	}
	r.secrets = []string{"authorization", "proxy-authorization", "cookie", r.keyField.lower, strings.ToLower(o.JWT.Header)}
	if !o.JWT.isZero() {
		if r.tokens, err = NewTokens(o.JWT, r.log); err != nil {
			return nil, fmt.Errorf("identity: JWT: %w", err)
		}
	}
	return r, nil
}

// parseSources parses the sources of User, ServiceAccount, Tenant, Tier and Region.
func (o *Options) parseSources() ([]namedSource, error) {
	var sources []namedSource
	for _, attribute := range []struct {
		name string
		from []string
	}{
		{"user", o.User},
		{"service_account", o.ServiceAccount},
		{"tenant", o.Tenant},
		{"tier", o.Tier},
		{"region", o.Region},
	} {
		for _, from := range attribute.from {
			place, name, _ := strings.Cut(from, ".")
			switch {
			case place == "header" && name != "":
				sources = append(sources, namedSource{name: attribute.name, header: newField(name)})
			case place == "claim" && name != "" && o.JWT.isZero():
				return nil, fmt.Errorf("%s: source %q: no tokens are trusted: set JWT", attribute.name, from)
			case place == "claim" && name != "":
				sources = append(sources, namedSource{name: attribute.name, claim: name})
			default:
				return nil, fmt.Errorf("%s: source %q: must be header.NAME or claim.NAME", attribute.name, from)
			}
		}
	}
	return sources, nil
}

// Close stops refreshing keys. The Resolver stays usable with its current keys.
func (r *Resolver) Close() {
	if r.tokens != nil {
		r.tokens.Close()
	}
}

// Attributes returns the attributes of a request: ip, api_key, user, service_account, tenant, tier, region, method, host, path,
// route and user_agent, as far as they are known, and headgate.OtherPath and headgate.OtherMethod if a backend may interpret the
// request differently. It also returns the attributes in names that begin with header., cookie. or claim.; other names are ignored.
//
// A header or cookie in names has the value that the client sent, whether or not the peer is trusted. Headers that contain secrets
// are returned as a hash.
func (r *Resolver) Attributes(req *http.Request, names ...string) headgate.Attributes {
	c := call{header: req.Header, canonical: true}
	c.peer, _ = parseAddr(req.RemoteAddr)
	if req.URL != nil {
		c.query = req.URL.RawQuery
	}
	attrs := make(headgate.Attributes, 8+len(names))
	method, otherMethod := methods(req)
	path, otherPath := Path(target(req))
	put(attrs, "method", method)
	put(attrs, headgate.OtherMethod, otherMethod)
	put(attrs, "path", path)
	put(attrs, headgate.OtherPath, otherPath)
	put(attrs, "host", bounded(hostname(req.Host)))
	put(attrs, "route", bounded(routeOf(req.Pattern)))
	r.identify(&c, attrs, names)
	return attrs
}

// Metadata returns the attributes of a gRPC call, like Attributes: from its metadata, the peer's address, which is nil if unknown,
// and the full method, "/package.Service/Method", which becomes the path. The method is POST.
func (r *Resolver) Metadata(
	metadata map[string][]string, peer net.Addr, fullMethod string, names ...string,
) headgate.Attributes {
	c := call{header: metadata}
	if peer != nil {
		c.peer, _ = parseAddr(peer.String())
	}
	attrs := make(headgate.Attributes, 8+len(names))
	path, otherPath := Path(fullMethod)
	put(attrs, "method", http.MethodPost)
	put(attrs, "path", path)
	put(attrs, headgate.OtherPath, otherPath)
	put(attrs, "host", bounded(hostname(c.value(authorityField))))
	r.identify(&c, attrs, names)
	return attrs
}

// FromProxy returns the lines of a header that only a trusted proxy may send. If the peer is not trusted, it returns nil and logs
// the peer, at most once a day.
func (r *Resolver) FromProxy(req *http.Request, header string) []string {
	header = http.CanonicalHeaderKey(header)
	lines := req.Header[header]
	if len(lines) == 0 {
		return nil
	}
	peer, _ := parseAddr(req.RemoteAddr)
	if r.proxies.trusts(peer, 1) {
		return lines
	}
	r.logUntrusted(peer, header)
	return nil
}

// logUntrusted logs, once a day per peer, that an untrusted peer sent a header that only a trusted proxy may send. If the peer is a
// proxy, all its clients are counted as one.
func (r *Resolver) logUntrusted(addr netip.Addr, header string) {
	peer := cmp.Or(r.proxies.text(addr), "a peer without an address")
	if _, ok := r.untrusted.Allow(peer); ok {
		r.log.Warn("header of an untrusted peer ignored; if the peer is a proxy, add it to the trusted proxies", "peer", peer, "header", header)
	}
}

// identify adds the attributes that HTTP requests and gRPC calls have in common.
func (r *Resolver) identify(c *call, attrs headgate.Attributes, names []string) {
	trusted := r.proxies.trusts(c.peer, 1)
	client := c.peer
	if lines := c.lines(r.proxies.header); len(lines) > 0 {
		if trusted {
			client = r.proxies.client(c.peer, lines)
		} else {
			r.logUntrusted(c.peer, r.proxies.header.canonical)
		}
	}
	put(attrs, "ip", r.proxies.text(client))
	put(attrs, "api_key", r.apiKey(c))
	put(attrs, "user_agent", cut(c.value(userAgentField), MaxValue))

	var claims map[string]any
	if r.tokens != nil {
		claims = r.tokens.claims(c)
	}
	for _, source := range r.sources {
		switch {
		case attrs[source.name] != "":
		case source.claim != "":
			put(attrs, source.name, bounded(claimText(claims, source.claim)))
		case trusted:
			put(attrs, source.name, bounded(c.value(source.header)))
		}
	}
	for _, name := range names {
		if len(name) <= maxName {
			put(attrs, name, r.named(c, claims, name))
		}
	}
}

// named returns the value of an attribute whose name contains its source, such as header.x-rows.
func (r *Resolver) named(c *call, claims map[string]any, name string) string {
	switch place, rest, _ := strings.Cut(name, "."); place {
	case "header":
		f := newField(rest)
		value := c.value(f)
		if value != "" && slices.Contains(r.secrets, f.lower) {
			return headgate.HashKey(value)
		}
		return bounded(value)
	case "cookie":
		return bounded(c.cookie(rest))
	case "claim":
		return bounded(claimText(claims, rest))
	}
	return ""
}

// apiKey returns the hash of the request's API key, or "" without a key.
func (r *Resolver) apiKey(c *call) string {
	var keys []string
	if r.keyField.lower != "" {
		for _, line := range c.lines(r.keyField) {
			if r.keyField.canonical == authorization {
				line = bearer(line)
			}
			keys = append(keys, line)
		}
	}
	if r.keyQuery != "" {
		keys = slices.AppendSeq(keys, parameters(c.query, r.keyQuery))
	}
	return oneKey(keys)
}

// severalKeys is the api_key of all requests that have several different keys. Only the backend knows which key it uses. Without an
// api_key, a client would escape rules that skip requests without a key; with one of the keys, it could choose another each time.
var severalKeys = headgate.HashKey("several API keys in one request")

// oneKey returns the hash of the only key in the lines, severalKeys if they differ, or "" if there is none.
func oneKey(keys []string) string {
	hash := ""
	for _, line := range keys {
		for key := range strings.SplitSeq(line, ",") { // proxies join the lines of a header with commas
			switch one := headgate.HashKey(key); {
			case one == "" || one == hash:
			case hash == "":
				hash = one
			default:
				return severalKeys
			}
		}
	}
	return hash
}
