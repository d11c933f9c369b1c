// Package envoyconfig converts configs of envoyproxy/ratelimit into rule documents, with tests for them. It reports each setting that
// rules cannot express, with its position and an alternative.
//
// It makes no rate limit decisions: package envoyrls responds to Envoy.
package envoyconfig

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/yamldoc"
)

// config is the content of one file.
type config struct {
	domain      string
	descriptors []*descriptor
	ignored     []*node // keys that have no effect here
}

// descriptor is a node of the config's tree. It matches entries with this key and value; an empty value matches all values.
type descriptor struct {
	node       *node
	at         string // file and line
	key, value string
	limit      *rateLimit
	below      []*descriptor

	shadow, quota, shares bool
	metrics               []*node // the values of enabled metric keys
	metadata              *node
	ignored               []*node // keys that have no effect here, including those of the limit
}

type rateLimit struct {
	node      *node
	requests  int64
	unit      string
	unlimited bool
	name      string
	replaces  []*node // the names
	ignored   []*node
}

type (
	node         = yamldoc.Node
	decoder      = yamldoc.Decoder
	field[T any] = yamldoc.Field[*decoder, T]
)

// configFields returns the table of fields. It is a function, like the other tables, because descriptors are recursive.
func configFields() []field[config] {
	return []field[config]{
		{Key: "domain", Read: func(d *decoder, n *node, key string, c *config) { c.domain = scalar(d, n, key) }},
		{Key: "descriptors", Read: func(d *decoder, n *node, key string, c *config) {
			c.descriptors = readDescriptors(d, n, key)
		}},
	}
}

func descriptorFields() []field[descriptor] {
	metric := func(d *decoder, n *node, key string, x *descriptor) {
		if d.Bool(n, key) {
			x.metrics = append(x.metrics, n)
		}
	}
	return []field[descriptor]{
		{Key: "key", Read: func(d *decoder, n *node, key string, x *descriptor) { x.key = scalar(d, n, key) }},
		{Key: "value", Read: func(d *decoder, n *node, key string, x *descriptor) { x.value = scalar(d, n, key) }},
		{Key: "rate_limit", Read: func(d *decoder, n *node, key string, x *descriptor) {
			x.limit = readLimit(d, n, key)
			x.ignored = append(x.ignored, x.limit.ignored...)
		}},
		{Key: "descriptors", Read: func(d *decoder, n *node, key string, x *descriptor) {
			x.below = readDescriptors(d, n, key)
		}},
		{Key: "shadow_mode", Read: func(d *decoder, n *node, key string, x *descriptor) { x.shadow = d.Bool(n, key) }},
		{Key: "quota_mode", Read: func(d *decoder, n *node, key string, x *descriptor) { x.quota = d.Bool(n, key) }},
		{Key: "share_threshold", Read: func(d *decoder, n *node, key string, x *descriptor) { x.shares = d.Bool(n, key) }},
		{Key: "detailed_metric", Read: metric},
		{Key: "value_to_metric", Read: metric},
		{Key: "metadata", Read: func(_ *decoder, n *node, _ string, x *descriptor) { x.metadata = n }},
	}
}

func limitFields() []field[rateLimit] {
	return []field[rateLimit]{
		{Key: "unit", Read: func(d *decoder, n *node, key string, l *rateLimit) {
			if l.unit = strings.ToLower(n.Text); windows[l.unit] == 0 {
				d.Enum(n, key, unitWords)
			}
		}},
		{Key: "requests_per_unit", Read: func(d *decoder, n *node, key string, l *rateLimit) {
			l.requests = d.Int(n, key, 0, "")
		}},
		{Key: "unlimited", Read: func(d *decoder, n *node, key string, l *rateLimit) { l.unlimited = d.Bool(n, key) }},
		{Key: "name", Read: func(d *decoder, n *node, key string, l *rateLimit) { l.name = scalar(d, n, key) }},
		{Key: "replaces", Read: func(d *decoder, n *node, key string, l *rateLimit) {
			for _, item := range list(d, n, key) {
				named := len(l.replaces)
				l.ignored = append(l.ignored, fields(d, item, key, replacesFields, l)...)
				if item.Kind == yamldoc.Mapping && len(l.replaces) == named {
					d.Bad(item, "replaces: no limit named: write the name of one")
				}
			}
		}},
	}
}

var replacesFields = []field[rateLimit]{
	{Key: "name", Read: func(d *decoder, n *node, key string, l *rateLimit) {
		if scalar(d, n, key) == "" {
			d.Bad(n, "replaces: no limit named: write the name of one")
		}
		l.replaces = append(l.replaces, n)
	}},
}

// readConfig reads one file and reports all problems.
func readConfig(d *decoder) (c config) {
	documents, problems := yamldoc.Parse(d.Source)
	for _, p := range problems {
		d.Report.Add(d.Number, p)
	}
	switch {
	case len(problems) > 0:
	case len(documents) != 1:
		d.BadAt(1, 1, "a config is one document with domain and descriptors: put each document into its own file")
	default:
		c.ignored = fields(d, documents[0], "a config", configFields(), &c)
		if c.domain == "" {
			d.Bad(documents[0].Find([]string{"domain"}), "a config needs a domain: write the domain of Envoy's rate limit filter")
		}
	}
	return c
}

func readDescriptors(d *decoder, n *node, key string) []*descriptor {
	var all []*descriptor
	for _, item := range list(d, n, key) {
		x := &descriptor{node: item, at: fmt.Sprintf("%s:%d", d.Source.Name, item.Line)}
		x.ignored = append(x.ignored, fields(d, item, "a descriptor", descriptorFields(), x)...)
		switch {
		case x.key == "" && item.Kind == yamldoc.Mapping:
			d.Bad(item.Find([]string{"key"}), "a descriptor needs a key: write the key of the entry that Envoy sends")
		case x.shares && !x.wild() && !x.manyKeys():
			d.Bad(item.Find([]string{"share_threshold"}),
				"share_threshold requires a value with *, not %q: remove it", x.value)
		}
		all = append(all, x)
	}
	checkDuplicates(d, all, nil)
	return all
}

// checkDuplicates reports descriptors that occur twice, in all or in all and others.
func checkDuplicates(d *decoder, all, others []*descriptor) {
	seen := map[[2]string]*descriptor{}
	for _, x := range others {
		seen[[2]string{x.key, x.value}] = x
	}
	for _, x := range all {
		if other := seen[[2]string{x.key, x.value}]; other != nil && x.key != "" {
			d.Bad(x.node, "%s is a duplicate of %s: remove one of them", x, other.at)
		}
		seen[[2]string{x.key, x.value}] = x
	}
}

func readLimit(d *decoder, n *node, key string) *rateLimit {
	l := &rateLimit{node: n}
	l.ignored = append(l.ignored, fields(d, n, key, limitFields(), l)...)
	switch {
	case n.Kind != yamldoc.Mapping:
	case l.unlimited && l.unit != "":
		d.Bad(n.Find([]string{"unlimited"}), "%s: unlimited and unit exclude each other: remove one of them", key)
	case !l.unlimited && l.unit == "":
		d.Bad(n, "%s: needs a unit (%s) or unlimited: true", key, strings.Join(unitWords, ", "))
	}
	for _, name := range l.replaces {
		if name.Text == l.name {
			d.Bad(name, "replaces: a limit cannot replace itself: write the name of another limit")
		}
	}
	return l
}

// scalar reads text. It accepts numbers and booleans as the text that is written.
func scalar(d *decoder, n *node, key string) string {
	if n.Kind == yamldoc.Number || n.Kind == yamldoc.Boolean {
		return n.Text
	}
	s, _ := d.Text(n, key)
	return s
}

func list(d *decoder, n *node, key string) []*node {
	if n.Kind != yamldoc.List {
		d.Bad(n, "%s: must be a list: begin each item with a dash", key)
	}
	return n.Items
}

// manyKeys reports whether the key contains a wildcard, an undocumented feature.
func (x *descriptor) manyKeys() bool { return strings.Contains(x.key, "*") }

// String returns the descriptor as one step of a path: message_type=marketing.
func (x *descriptor) String() string {
	if x.value == "" {
		return x.key
	}
	return x.key + "=" + x.value
}
