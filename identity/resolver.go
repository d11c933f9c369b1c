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

// Options say whom to believe. The zero value believes nobody: a request then has the address of its peer, and what is
// plain to see of it, such as path, method and host.
type Options struct {
	// TrustedProxies are the peers that are believed about whom they forward for, and whose headers may say who is
	// calling. Such a proxy must remove those headers from what clients send.
	TrustedProxies []netip.Prefix
	// TrustedHops is for proxies whose addresses are not known in advance: how many of them a request passes, the peer
	// included. Whoever can connect is then believed, so nobody but the proxy may be able to.
	TrustedHops int
	// TrustUnix believes peers that have no IP address, as on a Unix socket.
	TrustUnix bool
	// ForwardedHeader is the header that the proxies write: XForwardedFor, which is the default, or Forwarded. The other
	// one is never read: a proxy that writes one passes on what clients put into the other.
	ForwardedHeader string
	// IPv6Prefix is how many bits of an IPv6 address make one client; 0 means 64, what a customer usually gets.
	IPv6Prefix int

	// APIKey says where API keys are. Name a place only if requests with a made-up key get nowhere: a client could
	// otherwise be as many as it likes.
	APIKey APIKey
	// JWT says which tokens are believed.
	JWT JWT

	// User, ServiceAccount, Tenant, Tier and Region say where these attributes come from: "claim.x" of a believed token,
	// "header.x" of a trusted proxy. The first that a request has is taken. User is by default claim.sub, then
	// header.x-user-id; the others come from nowhere.
	User, ServiceAccount, Tenant, Tier, Region []string

	// Log is told of peers that are not believed and of keys that cannot be had; nil means slog.Default().
	Log *slog.Logger
}

// APIKey says where API keys are; if both are given, either will do. Requests with two different keys, which may be
// joined by a comma, are counted as one client.
type APIKey struct {
	// Header is the name of a header: X-API-Key. In Authorization the key is what follows "Bearer".
	Header string
	// Query is the name of a query parameter.
	Query string
}

// Resolver makes attributes. It is safe for use by many goroutines.
type Resolver struct {
	proxies   *proxies
	log       *slog.Logger
	untrusted ratelog.Limiter // peers that sent a proxy's header, by address
	tokens    *Tokens         // nil if none are believed
	keyField  field           // empty if keys are not in a header
	keyQuery  string
	sources   []namedSource
	secrets   []string // headers that are shown as a hash only
}

// namedSource says where one attribute comes from. One of claim and header is given.
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

// New is ready at once: keys that are at a URL are fetched in the background, and until they are there no token is
// believed. Close the resolver when it is no longer needed.
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
				return nil, fmt.Errorf("%s cannot come from %q: no tokens are believed, say in JWT which are", attribute.name, from)
			case place == "claim" && name != "":
				sources = append(sources, namedSource{name: attribute.name, claim: name})
			default:
				return nil, fmt.Errorf("%s cannot come from %q: write header.x or claim.x", attribute.name, from)
			}
		}
	}
	return sources, nil
}

// Close stops the watch over keys. Attributes can still be made, with the keys at hand.
func (r *Resolver) Close() {
	if r.tokens != nil {
		r.tokens.Close()
	}
}

// Attributes says who sent a request, and what it is: ip, api_key, user, service_account, tenant, tier, region, method,
// host, path, route, user_agent, as far as they are known, with headgate.OtherPath and headgate.OtherMethod where a
// backend may read the request in other ways. Besides, it has those of the names that begin with header., cookie. or
// claim.; other names are passed over.
//
// A header or cookie that is asked for by name is what the client sent, whoever the peer is. Headers that hold secrets
// are shown as a hash.
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

// Metadata is Attributes of a gRPC call: metadata as it came, the peer's address, nil if it is not known, and the full
// method, "/package.Service/Method", which is the path. The method is POST.
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

// FromProxy has the lines of a header that only a trusted proxy may send. There are none if the peer is not one; it is
// then named in the log, as if it had sent the forwarded header.
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

// logUntrusted names a peer in the log, once a day, that sent a header which only a trusted proxy may send. If it is a proxy, all its
// clients are counted as one.
func (r *Resolver) logUntrusted(addr netip.Addr, header string) {
	peer := cmp.Or(r.proxies.text(addr), "a peer without an address")
	if _, ok := r.untrusted.Allow(peer); ok {
		r.log.Warn("header ignored: the peer is not trusted; if it is a proxy, add it to the trusted ones", "peer", peer, "header", header)
	}
}

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

// named is the value of an attribute that says itself where it comes from.
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

// apiKey is the hash of the key that is in all the places where there is one.
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

// severalKeys stands for the key of all requests that have several which differ. Which one counts is for the API behind to know; with
// none at all a client would escape rules that skip requests without a key, and with one of them it could choose another each time.
var severalKeys = headgate.HashKey("several API keys in one request")

// oneKey is the hash of the key that all are.
func oneKey(keys []string) string {
	hash := ""
	for _, line := range keys {
		for key := range strings.SplitSeq(line, ",") { // as proxies join the lines of a header
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
