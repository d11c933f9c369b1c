// Package envoyconfig knows the config of envoyproxy/ratelimit and turns it into rule documents, with tests of them.
// What rules cannot say it tells, each thing with its place and what to do instead.
//
// It decides nothing: package envoyrls answers Envoy, by whatever rules there are.
package envoyconfig

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/yamldoc"
)

// config is what one file says.
type config struct {
	domain      string
	descriptors []*descriptor
	odd         []*node // keys that have no meaning in their place
}

// descriptor is a node of the tree: requests with this key and value, or any value if it is empty, come by here.
type descriptor struct {
	node       *node
	at         string // file and line
	key, value string
	limit      *rateLimit
	below      []*descriptor

	shadow, quota, shares bool
	metrics               []*node // the values of keys about metrics that are true
	metadata              *node
	odd                   []*node // keys that have no meaning in their place, those of the limit included
}

type rateLimit struct {
	node      *node
	requests  int64
	unit      string
	unlimited bool
	name      string
	replaces  []*node // the names
	odd       []*node
}

type (
	node         = yamldoc.Node
	decoder      = yamldoc.Decoder
	field[T any] = yamldoc.Field[*decoder, T]
)

// configFields is a function, as the other tables are, because descriptors hold descriptors.
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
			x.odd = append(x.odd, x.limit.odd...)
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
				l.odd = append(l.odd, fields(d, item, key, replacesFields, l)...)
				if item.Kind == yamldoc.Mapping && len(l.replaces) == named {
					d.Bad(item, "replaces names no limit: write the name of one")
				}
			}
		}},
	}
}

var replacesFields = []field[rateLimit]{
	{Key: "name", Read: func(d *decoder, n *node, key string, l *rateLimit) {
		if scalar(d, n, key) == "" {
			d.Bad(n, "replaces names no limit: write the name of one")
		}
		l.replaces = append(l.replaces, n)
	}},
}

// readConfig reads one file. All that is wrong with it is noted.
func readConfig(d *decoder) (c config) {
	documents, problems := yamldoc.Parse(d.Source)
	for _, p := range problems {
		d.Report.Add(d.Number, p)
	}
	switch {
	case len(problems) > 0:
	case len(documents) != 1:
		d.BadAt(1, 1, "a config is one document with domain and descriptors: put each into a file of its own")
	default:
		c.odd = fields(d, documents[0], "a config", configFields(), &c)
		if c.domain == "" {
			d.Bad(documents[0].Find([]string{"domain"}), "a config needs a domain: the one in Envoy's rate limit filter")
		}
	}
	return c
}

func readDescriptors(d *decoder, n *node, key string) []*descriptor {
	var all []*descriptor
	for _, item := range list(d, n, key) {
		x := &descriptor{node: item, at: fmt.Sprintf("%s:%d", d.Source.Name, item.Line)}
		x.odd = append(x.odd, fields(d, item, "a descriptor", descriptorFields(), x)...)
		switch {
		case x.key == "" && item.Kind == yamldoc.Mapping:
			d.Bad(item.Find([]string{"key"}), "a descriptor needs a key: that of the entry that Envoy sends")
		case x.shares && !x.wild() && !x.manyKeys():
			d.Bad(item.Find([]string{"share_threshold"}),
				"share_threshold is for values with a *, and this one is %q: remove it", x.value)
		}
		all = append(all, x)
	}
	checkTwice(d, all, nil)
	return all
}

// checkTwice notes descriptors that are there already, among themselves or among others.
func checkTwice(d *decoder, all, others []*descriptor) {
	seen := map[[2]string]*descriptor{}
	for _, x := range others {
		seen[[2]string{x.key, x.value}] = x
	}
	for _, x := range all {
		if other := seen[[2]string{x.key, x.value}]; other != nil && x.key != "" {
			d.Bad(x.node, "%s is at %s, too: keep one of them", x, other.at)
		}
		seen[[2]string{x.key, x.value}] = x
	}
}

func readLimit(d *decoder, n *node, key string) *rateLimit {
	l := &rateLimit{node: n}
	l.odd = append(l.odd, fields(d, n, key, limitFields(), l)...)
	switch {
	case n.Kind != yamldoc.Mapping:
	case l.unlimited && l.unit != "":
		d.Bad(n.Find([]string{"unlimited"}), "%s is unlimited and has a unit: keep one of them", key)
	case !l.unlimited && l.unit == "":
		d.Bad(n, "%s needs a unit (%s), or unlimited: true", key, strings.Join(unitWords, ", "))
	}
	for _, name := range l.replaces {
		if name.Text == l.name {
			d.Bad(name, "the limit replaces itself: write the name of another")
		}
	}
	return l
}

// scalar reads text. A number or true is text, too, as it is written.
func scalar(d *decoder, n *node, key string) string {
	if n.Kind == yamldoc.Number || n.Kind == yamldoc.Boolean {
		return n.Text
	}
	s, _ := d.Text(n, key)
	return s
}

func list(d *decoder, n *node, key string) []*node {
	if n.Kind != yamldoc.List {
		d.Bad(n, "%s wants a list: begin each with a dash", key)
	}
	return n.Items
}

// manyKeys reports whether the key stands for many, which is not documented.
func (x *descriptor) manyKeys() bool { return strings.Contains(x.key, "*") }

// String is the descriptor as one step of a path: message_type=marketing.
func (x *descriptor) String() string {
	if x.value == "" {
		return x.key
	}
	return x.key + "=" + x.value
}
