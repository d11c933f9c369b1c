package headgate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// condition is one attribute's pattern, made ready. Exactly the fields that its attribute gives a meaning are filled.
type condition struct {
	name    string
	slot    int
	pattern Pattern
	// Of a path.
	templates, notTemplates []template
	ignoreCase              bool
}

// conditions are all patterns of a match, those of Path, Method and Host among them, by name.
func (m *Match) conditions() (map[string]Pattern, []problem) {
	var problems []problem
	all := make(map[string]Pattern, len(m.Attributes)+3)
	maps.Copy(all, m.Attributes)
	for _, short := range []struct{ name, value string }{{attrPath, m.Path}, {attrMethod, m.Method}, {attrHost, m.Host}} {
		if short.value == "" {
			continue
		}
		if _, twice := all[short.name]; twice {
			problems = append(problems, problem{[]string{"match", short.name}, "is given twice, in Match and in its Attributes: keep one"})
		}
		all[short.name] = OneOf(short.value)
	}
	if _, ok := all[attrPath]; m.IgnoreCase && !ok {
		problems = append(problems, problem{[]string{"match", "ignore_case"}, "is about paths, and the rule matches none: remove it, or add path"})
	}
	return all, problems
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
	asksValue := len(p.Values) > 0 || p.Prefix != "" || len(p.CIDR) > 0
	switch {
	case p.Presence == Absent && (asksValue || len(p.Not) > 0):
		bad("an attribute cannot be absent and have a value: keep one of them")
	case p.Presence > Absent:
		bad("there is no presence %d", p.Presence)
	case !asksValue && len(p.Not) == 0 && p.Presence == AnyPresence:
		bad("asks for nothing: give a value, a list, prefix, cidr, not or absent")
	}
	for _, v := range slices.Concat(p.Values, p.Not) {
		if v == "" {
			bad("an empty value is the same as none: write {absent: true}")
		}
	}
	for _, network := range p.CIDR {
		switch {
		case !network.IsValid():
			bad("a network is written like 10.0.0.0/8")
		case network.Addr().Is4In6():
			bad("%s is IPv4 in the clothes of IPv6: write it as IPv4", network)
		case network != network.Masked():
			bad("%s has bits set beyond its prefix: write %s", network, network.Masked())
		}
	}
	switch name {
	case attrAPIKey, attrKeyEntry:
		if p.Prefix != "" || len(p.CIDR) > 0 {
			bad("keys are compared as hashes, of which no part says anything: list the keys or their hashes")
		}
		c.pattern.Values, c.pattern.Not = ensureKeyHashes(p.Values), ensureKeyHashes(p.Not)
	case attrClient: // which may be a key
		c.pattern.Values = slices.Concat(p.Values, ensureKeyHashes(p.Values))
		c.pattern.Not = slices.Concat(p.Not, ensureKeyHashes(p.Not))
	case attrPath:
		if p.Prefix != "" || len(p.CIDR) > 0 {
			bad("paths are matched by templates: write %s for all that begins like this", quote(strings.TrimSuffix(p.Prefix, "/")+"/**"))
		}
		c.templates = c.parse(p.Values, bad)
		c.notTemplates = c.parse(p.Not, bad)
	case attrMethod:
		for _, m := range slices.Concat(p.Values, p.Not) {
			if m != strings.ToUpper(m) {
				bad("methods are written in capitals: %s", strings.ToUpper(m))
			}
			if m == "HEAD" {
				bad("HEAD counts as GET, which it is answered as: write GET")
			}
		}
	case attrHost:
		checkHosts(slices.Concat(p.Values, p.Not), bad)
	}
	return c, problems
}

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

func checkHosts(hosts []string, bad func(string, ...any)) {
	for _, h := range hosts {
		switch name := strings.TrimPrefix(h, "*."); {
		case h != strings.ToLower(h):
			bad("hosts are compared in lower case: write %s", strings.ToLower(h))
		case strings.Contains(name, "*"):
			bad("host %s: a star stands only at the front, as in *.example.com", quote(h))
		case strings.Contains(name, "/") || strings.Count(name, ":") == 1:
			bad("host %s: write the name alone, without scheme, port or path", quote(h))
		}
	}
}

// holds is the whole truth about a condition in one reading; the index only saves asking it of most rules.
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
		if c.name == attrHost && isBelow(value, want) {
			return true
		}
	}
	return false
}

// isBelow is true if host is a name below the wildcard *.example.com.
func isBelow(host, wildcard string) bool {
	suffix, ok := strings.CutPrefix(wildcard, "*")
	return ok && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// holdsForPath is holdsFor with templates in the place of values.
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

// parseAddress reads an address or a network, as which IPv6 clients are known.
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
