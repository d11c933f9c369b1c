package ruledoc

import (
	"net/netip"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// readRule is a rule with what only matters while it is read.
type readRule struct {
	headgate.Rule
	node   *node
	source int
	// Limits are read when the rule's algorithm is known, which may be written after them.
	algorithm                       *headgate.Algorithm
	limit, limits, tiers, candidate *node
}

var ruleFields = []field[readRule]{
	{"id", func(d *decoder, n *node, key string, r *readRule) { r.ID, _ = d.text(n, key) }},
	{"description", func(d *decoder, n *node, key string, r *readRule) { r.Description, _ = d.text(n, key) }},
	{"labels", func(d *decoder, n *node, key string, r *readRule) { r.Labels = d.labels(n, key) }},
	{"match", func(d *decoder, n *node, key string, r *readRule) { r.Match = d.match(n, key) }},
	{"when", func(d *decoder, n *node, key string, r *readRule) { r.When = d.condition(n, key) }},
	{"by", func(d *decoder, n *node, key string, r *readRule) { r.By = d.texts(n, key) }},
	{"on_missing", func(d *decoder, n *node, key string, r *readRule) {
		d.word(n, key, onMissingWords, (*uint8)(&r.OnMissing))
	}},
	{"limit", func(_ *decoder, n *node, _ string, r *readRule) { r.limit = n }},
	{"limits", func(_ *decoder, n *node, _ string, r *readRule) { r.limits = n }},
	{"algorithm", func(d *decoder, n *node, key string, r *readRule) { r.algorithm = d.algorithm(n, key) }},
	{"tiers", func(_ *decoder, n *node, _ string, r *readRule) { r.tiers = n }},
	{"candidate", func(_ *decoder, n *node, _ string, r *readRule) { r.candidate = n }},
	{"cost", func(d *decoder, n *node, key string, r *readRule) { r.Cost = d.cost(n, key) }},
	{"max_delay", func(d *decoder, n *node, key string, r *readRule) { r.MaxDelay = d.duration(n, key) }},
	{"priority", func(d *decoder, n *node, key string, r *readRule) { r.Priority = int(d.whole(n, key, 0, "")) }},
	{"mode", func(d *decoder, n *node, key string, r *readRule) { d.word(n, key, modeWords, (*uint8)(&r.Mode)) }},
	{"enforce_percent", func(d *decoder, n *node, key string, r *readRule) {
		r.EnforcePercent = int(d.whole(n, key, 1, "to refuse nobody write mode: shadow, or a share of 1 to 100"))
	}},
	{"on_store_failure", func(d *decoder, n *node, key string, r *readRule) {
		d.word(n, key, onStoreFailureWords, (*uint8)(&r.OnStoreFailure))
	}},
	{"strict", func(d *decoder, n *node, key string, r *readRule) { r.Strict = d.yesNo(n, key) }},
	{"critical", func(d *decoder, n *node, key string, r *readRule) { r.Critical = d.yesNo(n, key) }},
	{"expose", func(d *decoder, n *node, key string, r *readRule) {
		r.Expose = headgate.ExposeNever
		if d.yesNo(n, key) {
			r.Expose = headgate.ExposeAlways
		}
	}},
}

// The words of the enumerations, in the order of their values.
var (
	modeWords           = wordsOf(headgate.Enforce, headgate.Shadow, headgate.Off)
	onMissingWords      = wordsOf(headgate.ShareMissing, headgate.SkipMissing, headgate.DenyMissing)
	onStoreFailureWords = wordsOf(headgate.FailLocal, headgate.FailAllow, headgate.FailDeny)
)

func wordsOf[T interface{ String() string }](values ...T) []string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = v.String()
	}
	return words
}

// word reads one of the words into its value.
func (d *decoder) word(n *node, key string, words []string, into *uint8) {
	if i := d.choose(n, key, words); i >= 0 {
		*into = uint8(i)
	}
}

// readRule reads a rule, its limits included.
func (d *decoder) readRule(n *node) *readRule {
	r := &readRule{node: n, source: d.number}
	d.rule = ""
	if e, ok := n.get("id"); ok && e.value.kind == text {
		d.rule = e.value.text
	}
	fields(d, n, "a rule", ruleFields, r)
	if e, ok := n.get("by"); ok && r.By == nil && e.value.kind == nothing {
		r.By = headgate.Everybody // the missing value is told already
	}
	d.readLimits(r)
	d.rule = ""
	return r
}

func (d *decoder) labels(n *node, key string) map[string]string {
	if n.kind != mapping {
		d.bad(n, "%s wants names with values, {team: search}, not %s", key, describe(n))
		return nil
	}
	labels := make(map[string]string, len(n.entries))
	for _, e := range n.entries {
		labels[e.key.text], _ = d.text(e.value, "label "+e.key.text)
	}
	return labels
}

var costFields = []field[headgate.Cost]{
	{"from", func(d *decoder, n *node, key string, c *headgate.Cost) { c.From, _ = d.text(n, key) }},
	{"default", func(d *decoder, n *node, key string, c *headgate.Cost) { c.Default = d.whole(n, key, 1, "") }},
	{"min", func(d *decoder, n *node, key string, c *headgate.Cost) { c.Min = d.whole(n, key, 1, "") }},
	{"max", func(d *decoder, n *node, key string, c *headgate.Cost) { c.Max = d.whole(n, key, 1, "") }},
}

func (d *decoder) cost(n *node, key string) headgate.Cost {
	var c headgate.Cost
	switch n.kind {
	case number:
		c.Default = d.whole(n, key, 1, "a request costs 1 or more; to let some pass uncounted use match or an exemption")
	case mapping:
		fields(d, n, key, costFields, &c)
	default:
		d.bad(n, "%s wants a number or {from: header.x-rows, default: 1, max: 10000}, not %s", key, describe(n))
	}
	return c
}

// ignoreCase is the key of match that is no attribute.
const ignoreCase = "ignore_case"

func (d *decoder) match(n *node, key string) headgate.Match {
	var m headgate.Match
	if n.kind != mapping {
		d.bad(n, "%s wants attributes with values, {path: /login, method: POST}, not %s", key, describe(n))
		return m
	}
	short := map[string]*string{"path": &m.Path, "method": &m.Method, "host": &m.Host}
	for _, e := range n.entries {
		name := e.key.text
		if !d.given(e) {
			continue
		}
		if name == ignoreCase {
			m.IgnoreCase = d.yesNo(e.value, name)
			continue
		}
		if into := short[name]; into != nil && e.value.kind == text && e.value.text != "" {
			*into = e.value.text
			continue
		}
		p, ok := d.pattern(e.value, name)
		if !ok {
			continue
		}
		if m.Attributes == nil {
			m.Attributes = map[string]headgate.Pattern{}
		}
		m.Attributes[name] = p
	}
	return m
}

var patternFields = []field[headgate.Pattern]{
	{"in", func(d *decoder, n *node, key string, p *headgate.Pattern) { p.Values = d.texts(n, key) }},
	{"not", func(d *decoder, n *node, key string, p *headgate.Pattern) { p.Not = d.texts(n, key) }},
	{"prefix", func(d *decoder, n *node, key string, p *headgate.Pattern) { p.Prefix, _ = d.text(n, key) }},
	{"cidr", func(d *decoder, n *node, key string, p *headgate.Pattern) { p.CIDR = d.networks(n, key) }},
	{"absent", func(d *decoder, n *node, key string, p *headgate.Pattern) {
		p.Presence = headgate.Present
		if d.yesNo(n, key) {
			p.Presence = headgate.Absent
		}
	}},
}

// pattern reads what an attribute must be. It is not ok if something is wrong already, and what is left of it would
// only be misunderstood.
func (d *decoder) pattern(n *node, key string) (p headgate.Pattern, ok bool) {
	before := d.report.count
	if n.kind == mapping {
		fields(d, n, key, patternFields, &p)
	} else {
		p.Values = d.texts(n, key)
	}
	return p, d.report.count == before
}

func (d *decoder) networks(n *node, key string) []netip.Prefix {
	items := []*node{n}
	if n.kind == list {
		items = n.items
	}
	var all []netip.Prefix
	for _, item := range items {
		if s, ok := d.text(item, key); ok {
			if p, ok := d.network(item, key, s); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// network reads 10.0.0.0/8; an address is a network of one.
func (d *decoder) network(n *node, key, s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		d.bad(n, "%s: %q is no network: write it like 10.0.0.0/8 or 2001:db8::/32", key, shorten(s))
	}
	return p, err == nil
}

// zone reads the name of a time zone.
func (d *decoder) zone(n *node, key string) *time.Location {
	s, ok := d.text(n, key)
	if !ok {
		return nil
	}
	if zone, ok := d.known.zones[s]; ok {
		return zone
	}
	zone, err := time.LoadLocation(s)
	if err != nil || s == "" || strings.EqualFold(s, "local") {
		d.bad(n, "%s: there is no time zone %q here: write a name like Europe/Berlin or UTC", key, shorten(s))
		return nil
	}
	d.known.zones[s] = zone
	return zone
}
