package headgate

import (
	"slices"
	"strings"
)

// Attributes are what is known of a request, by name: {"ip": "192.0.2.1", "path": "/login", "method": "POST"}. An empty
// value is the same as none.
//
// Bare names are built in: ip, client, api_key, user, service_account, tenant, tier, method, host, path, route,
// user_agent, region; of a descriptor of Envoy's, domain and entries, the keys in their order: "remote_address,path". The others say where they come from: header.x, cookie.x, claim.x, descriptor.x. The attribute
// client need not be given: it is the api_key, else the user, else the ip.
//
// The values are taken as they are, but for an api_key, which is replaced by its hash unless it is one (see HashKey). Package
// identity makes them from a request so that no spelling of it escapes a rule, and no key stands for another client's.
type Attributes map[string]string

// Other readings of a request that servers do not agree on; see Path of package identity. A rule applies if it applies in one of
// the readings: each path with each method. Its conditions must hold there together, and rules with a priority compete
// there, so that a reading which the backend does not share displaces no rule that is for the one it has. A rule that counts
// by path or method counts the request under each value that it has in those readings.
const (
	// OtherPath is the attribute with the other readings of path, if there are any: a list with "?" between them.
	OtherPath = "path.other"
	// OtherMethod is the attribute with a second reading of method, if there is one; AnyMethod if it may be any.
	OtherMethod = "method.other"
	AnyMethod   = "*"
)

// Request is what is asked of a Limiter: may this pass now?
type Request struct {
	Attributes Attributes
	// Cost multiplies what the rules say a request costs; 0 means 1.
	Cost int64
	// Rule asks for the one rule of this ID, whether it matches or not; "" means all that match.
	Rule string
}

// The built-in attributes.
const (
	attrClient = "client"
	attrTier   = "tier"
	attrMethod = "method"
	attrHost   = "host"
	attrPath   = "path"
	attrIP     = "ip"
	attrAPIKey = "api_key"
	// attrKeyEntry is that of an entry of Envoy's which is an API key, too.
	attrKeyEntry = "descriptor.api_key"
)

var (
	builtIn = []string{
		attrIP, attrClient, attrAPIKey, "user", "service_account", "tenant", attrTier, attrMethod, attrHost, attrPath, "route",
		"user_agent", "region", "domain", "entries",
	}
	sources = []string{"header.", "cookie.", "claim.", "descriptor."}
	// clientIs is what the attribute client stands for: the first of these that the request has.
	clientIs = []string{attrAPIKey, "user", attrIP}
)

// Client is the attribute that stands for client: the api_key, else the user, else the ip. If there is none it is what
// was given as client.
func (a Attributes) Client() (name, value string) {
	for _, name = range clientIs {
		if value = a[name]; value != "" {
			return name, value
		}
	}
	return attrClient, a[attrClient]
}

// BuiltIn are the names of the built-in attributes.
func BuiltIn() []string { return slices.Clone(builtIn) }

// checkAttribute says what is wrong with an attribute's name in a rule, or returns "".
func checkAttribute(name string) string {
	if slices.Contains(builtIn, name) {
		return ""
	}
	for _, s := range sources {
		rest, ok := strings.CutPrefix(name, s)
		switch {
		case !ok:
			continue
		case rest == "":
			return "attribute " + quote(name) + " lacks what comes after the dot"
		case s == "header." && rest != strings.ToLower(rest):
			return "attribute " + quote(name) + " has capitals: write " + strings.ToLower(name)
		}
		return ""
	}
	return "there is no attribute " + quote(name) + ": the built-in ones are " + strings.Join(builtIn, ", ") +
		"; others say where they come from: header.x, cookie.x, claim.x or descriptor.x"
}
