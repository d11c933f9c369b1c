package ruledoc

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// matchKeys are the keys of match that are not attributes.
var matchKeys = newObject(
	boolField("ignore_case", "compare paths case-insensitively", func(m *headgate.Match) *bool { return &m.IgnoreCase }),
)

// ownField returns the field of Match that holds the value of an attribute if the value is a single text.
var (
	ownFieldNames = []string{"path", "method", "host"}
	ownField      = map[string]func(*headgate.Match) *string{
		"path":   func(m *headgate.Match) *string { return &m.Path },
		"method": func(m *headgate.Match) *string { return &m.Method },
		"host":   func(m *headgate.Match) *string { return &m.Host },
	}
)

// matchDocs describes the attributes whose patterns have special syntax.
var matchDocs = map[string]string{
	"path":   "path templates: `/users/{id}` and `/users/*` match one segment, `/users/**` any number of segments",
	"method": "HTTP methods in upper case",
	"host":   "host names without port; `*.example.com` matches all names below it",
	"ip":     "client address: `{cidr: 10.0.0.0/8}`",
}

var patternKeys = newObject(
	textsField("in", "any of these values", func(p *headgate.Pattern) *[]string { return &p.Values }),
	textsField("not", "none of these values", func(p *headgate.Pattern) *[]string { return &p.Not }),
	textField("prefix", "prefix of the value", func(p *headgate.Pattern) *string { return &p.Prefix }).withSchema(`"minLength": 1`),
	field[headgate.Pattern]{
		key: "cidr", doc: "networks that contain the address", unset: "none", schema: `"$ref": "#/$defs/texts"`,
		read: func(d *decoder, n *node, key string, p *headgate.Pattern) { p.CIDR = d.networks(n, key) },
		write: func(e *encoder, what string, p *headgate.Pattern) *node {
			if len(p.CIDR) == 0 {
				return nil
			}
			return e.list(what, namesOf(p.CIDR...))
		},
	},
	optionalBoolField("absent", "`true` if the attribute must be absent, `false` if it must be present", headgate.Absent, headgate.Present,
		func(p *headgate.Pattern) *headgate.Presence { return &p.Presence }),
)

func (d *decoder) match(n *node, key string) headgate.Match {
	var m headgate.Match
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s: must map attributes to values, like {path: /login, method: POST}, not %s", key, n.Describe())
		return m
	}
	for _, e := range n.Entries {
		name := e.Key.Text
		if !d.HasValue(e) {
			continue
		}
		if f := matchKeys.field(name); f != nil {
			f.read(d, e.Value, name, &m)
			continue
		}
		if of := ownField[name]; of != nil && e.Value.Kind == yamldoc.Text && e.Value.Text != "" {
			*of(&m) = e.Value.Text
			continue
		}
		p, ok := d.pattern(e.Value, name)
		if !ok {
			continue
		}
		if m.Attributes == nil {
			m.Attributes = map[string]headgate.Pattern{}
		}
		if headgate.IsKeyAttribute(name) {
			d.keyHashes(e.Value, name, p.Values)
			d.keyHashes(e.Value, name, p.Not)
		}
		m.Attributes[name] = p
	}
	return m
}

// keyHashes replaces API keys by their hashes.
func (d *decoder) keyHashes(n *node, name string, keys []string) {
	for i, key := range keys {
		keys[i] = d.keyHash(n, name, key)
	}
}

// pattern decodes the pattern of an attribute. It returns false if the pattern has errors: the rest of it would only cause
// misleading ones.
func (d *decoder) pattern(n *node, key string) (p headgate.Pattern, ok bool) {
	before := d.Report.Count()
	if n.Kind == yamldoc.Mapping {
		patternKeys.read(d, n, key, &p)
	} else {
		p.Values = d.Texts(n, key)
	}
	return p, d.Report.Count() == before
}

func (d *decoder) networks(n *node, key string) []netip.Prefix {
	items := []*node{n}
	if n.Kind == yamldoc.List {
		items = n.Items
	}
	var all []netip.Prefix
	for _, item := range items {
		if s, ok := d.Text(item, key); ok {
			if p, ok := d.network(item, key, s); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// network parses 10.0.0.0/8; an address is a network of one address.
func (d *decoder) network(n *node, key, s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		d.Bad(n, "%s: invalid network %q: write it like 10.0.0.0/8 or 2001:db8::/32", key, yamldoc.Shorten(s))
	}
	return p, err == nil
}

func (e *encoder) match(what string, m headgate.Match) *node {
	n := mappingNode()
	for _, name := range ownFieldNames {
		put(n, name, e.text(what, *ownField[name](&m)))
		if p, ok := m.Attributes[name]; ok {
			put(n, name, e.pattern(what, p, true))
		}
	}
	n.Entries = append(n.Entries, matchKeys.write(e, what, &m).Entries...)
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		if _, given := n.Get(name); !given {
			e.text(what, name)
			put(n, name, e.pattern(what, m.Attributes[name], false))
		}
	}
	if len(n.Entries) == 0 {
		return nil
	}
	return n
}

// pattern encodes a pattern as a value or a list of values if it has nothing else. For path, method and host, asList forces
// a list, because a single value would be decoded into another field of Match.
func (e *encoder) pattern(what string, p headgate.Pattern, asList bool) *node {
	n := patternKeys.write(e, what, &p)
	if slices.ContainsFunc(n.Entries, func(e entry) bool { return e.Key.Text != "in" }) {
		return n
	}
	if asList || len(p.Values) != 1 {
		return e.list(what, p.Values)
	}
	return e.text(what, p.Values[0])
}
