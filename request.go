package headgate

import (
	"slices"
	"strings"
)

// Attributes describe a request by name: {"ip": "192.0.2.1", "path": "/login", "method": "POST"}. An empty value means that the
// attribute is absent.
//
// Names without a dot are built in: ip, client, api_key, user, service_account, tenant, tier, method, host, path, route,
// user_agent and region; for Envoy descriptors also domain and entries, the descriptor's keys in order: "remote_address,path".
// Other names have a prefix for their source: header.x, cookie.x, claim.x, descriptor.x. The attribute client is derived and need
// not be set: it is the api_key, else the user, else the ip.
//
// Values are used unchanged, except that an api_key is replaced by its hash unless it already is one (see HashKey). Package
// identity derives attributes from an HTTP request such that no spelling of a request evades a rule and no client can use the
// attributes of another.
type Attributes map[string]string

// Servers may interpret the path or the method of a request differently; see Path of package identity. Each combination of a path
// and a method is a reading of the request. A rule applies if it applies in at least one reading: all its conditions must hold in
// that reading, and rules with a priority compete within it, so that a reading that the backend does not share cannot displace a
// rule for the backend's own reading. A rule that counts by path or method counts the request under each value that it has in
// those readings.
const (
	// OtherPath is the attribute with the alternative readings of path, separated by "?".
	OtherPath = "path.other"
	// OtherMethod is the attribute with an alternative reading of method; AnyMethod means that it may be any method.
	OtherMethod = "method.other"
	// AnyMethod is the value of OtherMethod for any method.
	AnyMethod = "*"
)

// Request is a request to be decided by a Limiter.
type Request struct {
	Attributes Attributes
	// Cost multiplies the cost that the rules define; 0 means 1.
	Cost int64
	// Rule applies only the rule with this ID, whether it matches or not; "" applies all rules that match.
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
	// attrKeyEntry is the attribute of an Envoy descriptor entry that also holds an API key.
	attrKeyEntry = "descriptor.api_key"
)

var (
	builtIn = []string{
		attrIP, attrClient, attrAPIKey, "user", "service_account", "tenant", attrTier, attrMethod, attrHost, attrPath, "route",
		"user_agent", "region", "domain", "entries",
	}
	sources = []string{"header.", "cookie.", "claim.", "descriptor."}
	// clientSources are the attributes that client is derived from: the first one that the request has.
	clientSources = []string{attrAPIKey, "user", attrIP}
)

// Client returns the name and value of the attribute that client is derived from: the api_key, else the user, else the ip. If
// all are absent, it returns the attribute client itself.
func (a Attributes) Client() (name, value string) {
	for _, name = range clientSources {
		if value = a[name]; value != "" {
			return name, value
		}
	}
	return attrClient, a[attrClient]
}

// BuiltIn returns the names of the built-in attributes.
func BuiltIn() []string { return slices.Clone(builtIn) }

// checkAttribute returns what is wrong with an attribute's name in a rule, or "".
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
			return "attribute " + quote(name) + ": name required after the dot"
		case s == "header." && rest != strings.ToLower(rest):
			return "attribute " + quote(name) + ": must be lower case: write " + strings.ToLower(name)
		}
		return ""
	}
	return "unknown attribute " + quote(name) + ": must be one of " + strings.Join(builtIn, ", ") +
		", or have the prefix of its source: header.x, cookie.x, claim.x or descriptor.x"
}
