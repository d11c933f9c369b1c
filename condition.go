package headgate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// condition is the compiled pattern of one attribute.
type condition struct {
	name    string
	slot    int
	pattern Pattern
	// templates, notTemplates and ignoreCase are set only for path.
	templates, notTemplates []template
	ignoreCase              bool
}

// conditions returns all patterns of a match by attribute, including those of Path, Method and Host.
func (m *Match) conditions() (map[string]Pattern, []problem) {
	var problems []problem
	all := make(map[string]Pattern, len(m.Attributes)+3)
	maps.Copy(all, m.Attributes)
	for _, short := range []struct{ name, value string }{{attrPath, m.Path}, {attrMethod, m.Method}, {attrHost, m.Host}} {
		if short.value == "" {
			continue
		}
		if _, twice := all[short.name]; twice {
			problems = append(problems, problem{[]string{"match", short.name}, "duplicate: set in Match and in its Attributes: remove one"})
		}
		all[short.name] = OneOf(short.value)
	}
	if _, ok := all[attrPath]; m.IgnoreCase && !ok {
		problems = append(problems, problem{[]string{"match", "ignore_case"}, "only affects path, and the rule has no path: add path, or remove ignore_case"})
	}
	return all, problems
}

// allHold reports whether all conditions hold in the current reading of a request.
func allHold(conditions []condition, v *view) bool {
	for i := range conditions {
		if !conditions[i].holds(v) {
			return false
		}
	}
	return true
}

func newCondition(name string, slot int, p Pattern, ignoreCase bool) (condition, []problem) {
	c := condition{name: name, slot: slot, pattern: p, ignoreCase: ignoreCase && name == attrPath}
	var problems []problem
	bad := func(format string, args ...any) {
		problems = append(problems, problem{[]string{"match", name}, fmt.Sprintf(format, args...)})
	}
	if text := checkAttribute(name); text != "" {
		bad("%s", text)
	}
	hasValue := len(p.Values) > 0 || p.Prefix != "" || len(p.CIDR) > 0
	switch {
	case p.Presence == Absent && (hasValue || len(p.Not) > 0):
		bad("absent and a value exclude each other: remove one")
	case p.Presence > Absent:
		bad("presence %d: must be 0 to %d", p.Presence, Absent)
	case !hasValue && len(p.Not) == 0 && p.Presence == AnyPresence:
		bad("empty pattern: write a value, a list, prefix, cidr, not or absent")
	}
	for _, v := range slices.Concat(p.Values, p.Not) {
		if v == "" {
			bad("empty value: write {absent: true}")
		}
	}
	for _, network := range p.CIDR {
		switch {
		case !network.IsValid():
			bad("invalid network: write it like 10.0.0.0/8")
		case network.Addr().Is4In6():
			bad("%s: IPv4 mapped to IPv6: write it as IPv4", network)
		case network != network.Masked():
			bad("%s: has bits set after its prefix: write %s", network, network.Masked())
		}
	}
	switch name {
	case attrAPIKey, attrKeyEntry:
		if p.Prefix != "" || len(p.CIDR) > 0 {
			bad("prefix and cidr cannot match keys, which are compared as hashes: list the keys or their hashes")
		}
		c.pattern.Values, c.pattern.Not = ensureKeyHashes(p.Values), ensureKeyHashes(p.Not)
	case attrClient: // may be derived from a key
		c.pattern.Values = slices.Concat(p.Values, ensureKeyHashes(p.Values))
		c.pattern.Not = slices.Concat(p.Not, ensureKeyHashes(p.Not))
	case attrPath:
		if p.Prefix != "" || len(p.CIDR) > 0 {
			bad("prefix and cidr cannot match paths, which are matched by templates: write %s", quote(strings.TrimSuffix(p.Prefix, "/")+"/**"))
		}
		c.templates = c.parse(p.Values, bad)
		c.notTemplates = c.parse(p.Not, bad)
	case attrMethod:
		for _, m := range slices.Concat(p.Values, p.Not) {
			if m != strings.ToUpper(m) {
				bad("method %s: must be upper case: write %s", quote(m), strings.ToUpper(m))
			}
			if m == "HEAD" {
				bad("method \"HEAD\": HEAD requests are counted as GET: write GET")
			}
		}
	case attrHost:
		checkHosts(slices.Concat(p.Values, p.Not), bad)
	}
	return c, problems
}

// parse compiles path templates.
func (c *condition) parse(texts []string, bad func(string, ...any)) []template {
	var list []template
	for _, text := range texts {
		if text == "" {
			continue
		}
		if c.ignoreCase {
			text = foldCase(text)
		}
		t, err := parseTemplate(text)
		if err != nil {
			bad("%s", err)
		}
		list = append(list, t)
	}
	return list
}

// checkHosts checks the host names of a pattern.
func checkHosts(hosts []string, bad func(string, ...any)) {
	for _, h := range hosts {
		switch name := strings.TrimPrefix(h, "*."); {
		case h != strings.ToLower(h):
			bad("host %s: must be lower case: write %s", quote(h), strings.ToLower(h))
		case strings.Contains(name, "*"):
			bad("host %s: a wildcard is only allowed at the front: *.example.com", quote(h))
		case strings.Contains(name, "/") || strings.Count(name, ":") == 1:
			bad("host %s: must be a name without scheme, port or path", quote(h))
		}
	}
}

// holds reports whether the condition holds in the current reading. The index only avoids calling it for most rules.
func (c *condition) holds(v *view) bool {
	value := v.values[c.slot]
	p := &c.pattern
	switch {
	case p.Presence == Absent:
		return value == ""
	case value == "":
		return p.Presence == AnyPresence && len(p.Values) == 0 && p.Prefix == "" && len(p.CIDR) == 0
	case c.name == attrPath:
		return c.holdsForPath(v.path(c.ignoreCase))
	}
	return c.holdsFor(value)
}

// holdsFor reports whether the condition holds for a value.
func (c *condition) holdsFor(value string) bool {
	p := &c.pattern
	if c.isOneOf(p.Not, value) {
		return false
	}
	if len(p.Values) == 0 && p.Prefix == "" && len(p.CIDR) == 0 {
		return true
	}
	return c.isOneOf(p.Values, value) || p.Prefix != "" && strings.HasPrefix(value, p.Prefix) || len(p.CIDR) > 0 && inOneOf(p.CIDR, value)
}

func (c *condition) isOneOf(list []string, value string) bool {
	for _, want := range list {
		if want == value {
			return true
		}
		if c.name == attrHost && matchesWildcard(value, want) {
			return true
		}
	}
	return false
}

// matchesWildcard reports whether host is a subdomain of a wildcard such as *.example.com.
func matchesWildcard(host, wildcard string) bool {
	suffix, ok := strings.CutPrefix(wildcard, "*")
	return ok && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// holdsForPath reports whether the condition, whose values are templates, holds for a path.
func (c *condition) holdsForPath(path *segments) bool {
	for i := range c.notTemplates {
		if c.notTemplates[i].matches(path) {
			return false
		}
	}
	for i := range c.templates {
		if c.templates[i].matches(path) {
			return true
		}
	}
	return len(c.templates) == 0
}

// inOneOf reports whether an address or network is contained in one of the networks.
func inOneOf(networks []netip.Prefix, value string) bool {
	address, ok := parseAddress(value)
	if !ok {
		return false
	}
	for _, n := range networks {
		if n.Bits() <= address.Bits() && n.Contains(address.Addr()) {
			return true
		}
	}
	return false
}

// parseAddress parses an address or a network. IPv6 clients are identified by a network.
func parseAddress(value string) (netip.Prefix, bool) {
	if strings.IndexByte(value, '/') >= 0 {
		p, err := netip.ParsePrefix(value)
		return p, err == nil
	}
	a, err := netip.ParseAddr(value)
	if err != nil {
		return netip.Prefix{}, false
	}
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen()), true
}
