package ruledoc

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
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
	{Key: "id", Read: func(d *decoder, n *node, key string, r *readRule) { r.ID, _ = d.Text(n, key) }},
	{Key: "description", Read: func(d *decoder, n *node, key string, r *readRule) { r.Description, _ = d.Text(n, key) }},
	{Key: "labels", Read: func(d *decoder, n *node, key string, r *readRule) { r.Labels = d.labels(n, key) }},
	{Key: "match", Read: func(d *decoder, n *node, key string, r *readRule) { r.Match = d.match(n, key) }},
	{Key: "when", Read: func(d *decoder, n *node, key string, r *readRule) { r.When = d.condition(n, key) }},
	{Key: "by", Read: func(d *decoder, n *node, key string, r *readRule) { r.By = d.Texts(n, key) }},
	{Key: "on_missing", Read: func(d *decoder, n *node, key string, r *readRule) {
		d.word(n, key, onMissingWords, (*uint8)(&r.OnMissing))
	}},
	{Key: "limit", Read: func(_ *decoder, n *node, _ string, r *readRule) { r.limit = n }},
	{Key: "limits", Read: func(_ *decoder, n *node, _ string, r *readRule) { r.limits = n }},
	{Key: "algorithm", Read: func(d *decoder, n *node, key string, r *readRule) { r.algorithm = d.algorithm(n, key) }},
	{Key: "tiers", Read: func(_ *decoder, n *node, _ string, r *readRule) { r.tiers = n }},
	{Key: "max_caller_limit", Read: func(d *decoder, n *node, key string, r *readRule) {
		r.MaxCallerLimit.Count, r.MaxCallerLimit.Window = d.rate(n, key)
	}},
	{Key: "candidate", Read: func(_ *decoder, n *node, _ string, r *readRule) { r.candidate = n }},
	{Key: "cost", Read: func(d *decoder, n *node, key string, r *readRule) { r.Cost = d.cost(n, key) }},
	{Key: "overdraw", Read: func(d *decoder, n *node, key string, r *readRule) { r.Overdraw = d.YesNo(n, key) }},
	{Key: "max_delay", Read: func(d *decoder, n *node, key string, r *readRule) { r.MaxDelay = d.Duration(n, key) }},
	{Key: "priority", Read: func(d *decoder, n *node, key string, r *readRule) {
		r.Priority = int(d.Whole(n, key, 0, ""))
	}},
	{Key: "mode", Read: func(d *decoder, n *node, key string, r *readRule) {
		d.word(n, key, modeWords, (*uint8)(&r.Mode))
	}},
	{Key: "enforce_percent", Read: func(d *decoder, n *node, key string, r *readRule) {
		r.EnforcePercent = int(d.Whole(n, key, 1, "to refuse nobody write mode: shadow, or a share of 1 to 100"))
	}},
	{Key: "on_store_failure", Read: func(d *decoder, n *node, key string, r *readRule) {
		d.word(n, key, onStoreFailureWords, (*uint8)(&r.OnStoreFailure))
	}},
	{Key: "strict", Read: func(d *decoder, n *node, key string, r *readRule) { r.Strict = d.YesNo(n, key) }},
	{Key: "critical", Read: func(d *decoder, n *node, key string, r *readRule) { r.Critical = d.YesNo(n, key) }},
	{Key: "expose", Read: func(d *decoder, n *node, key string, r *readRule) {
		r.Expose = headgate.ExposeNever
		if d.YesNo(n, key) {
			r.Expose = headgate.ExposeAlways
		}
	}},
	{Key: "meter", Read: func(d *decoder, n *node, key string, r *readRule) { r.Meter = d.YesNo(n, key) }},
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
	if i := d.Choose(n, key, words); i >= 0 {
		*into = uint8(i)
	}
}

// readRule reads a rule, its limits included.
func (d *decoder) readRule(n *node) *readRule {
	r := &readRule{node: n, source: d.Number}
	d.In = textAt(n, "id")
	yamldoc.Fields(d, n, "a rule", ruleFields, r)
	if e, ok := n.Get("by"); ok && r.By == nil && e.Value.Kind == yamldoc.Nothing {
		r.By = headgate.Everybody // the missing value is told already
	}
	d.readLimits(r)
	d.In = ""
	return r
}

// textAt is the text of a key, or "".
func textAt(n *node, key string) string {
	if e, ok := n.Get(key); ok && e.Value.Kind == yamldoc.Text {
		return e.Value.Text
	}
	return ""
}

func (d *decoder) labels(n *node, key string) map[string]string {
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s wants names with values, {team: search}, not %s", key, n.Describe())
		return nil
	}
	labels := make(map[string]string, len(n.Entries))
	for _, e := range n.Entries {
		labels[e.Key.Text], _ = d.Text(e.Value, "label "+e.Key.Text)
	}
	return labels
}

var costFields = []field[headgate.Cost]{
	{Key: "from", Read: func(d *decoder, n *node, key string, c *headgate.Cost) { c.From, _ = d.Text(n, key) }},
	{Key: "default", Read: func(d *decoder, n *node, key string, c *headgate.Cost) { c.Default = d.Whole(n, key, 1, "") }},
	{Key: "min", Read: func(d *decoder, n *node, key string, c *headgate.Cost) { c.Min = d.Whole(n, key, 1, "") }},
	{Key: "max", Read: func(d *decoder, n *node, key string, c *headgate.Cost) { c.Max = d.Whole(n, key, 1, "") }},
}

func (d *decoder) cost(n *node, key string) headgate.Cost {
	var c headgate.Cost
	switch n.Kind {
	case yamldoc.Number:
		c.Default = d.Whole(n, key, 1, "a request costs 1 or more; to let some pass uncounted use match or an exemption")
	case yamldoc.Mapping:
		yamldoc.Fields(d, n, key, costFields, &c)
	default:
		d.Bad(n, "%s wants a number or {from: header.x-rows, default: 1, max: 10000}, not %s", key, n.Describe())
	}
	return c
}

// ignoreCase is the key of match that is no attribute.
const ignoreCase = "ignore_case"

func (d *decoder) match(n *node, key string) headgate.Match {
	var m headgate.Match
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s wants attributes with values, {path: /login, method: POST}, not %s", key, n.Describe())
		return m
	}
	short := map[string]*string{"path": &m.Path, "method": &m.Method, "host": &m.Host}
	for _, e := range n.Entries {
		name := e.Key.Text
		if !d.Given(e) {
			continue
		}
		if name == ignoreCase {
			m.IgnoreCase = d.YesNo(e.Value, name)
			continue
		}
		if into := short[name]; into != nil && e.Value.Kind == yamldoc.Text && e.Value.Text != "" {
			*into = e.Value.Text
			continue
		}
		p, ok := d.pattern(e.Value, name)
		if !ok {
			continue
		}
		if m.Attributes == nil {
			m.Attributes = map[string]headgate.Pattern{}
		}
		if slices.Contains(keyAttributes, name) {
			d.keyHashes(e.Value, name, p.Values)
			d.keyHashes(e.Value, name, p.Not)
		}
		m.Attributes[name] = p
	}
	return m
}

func (d *decoder) keyHashes(n *node, name string, keys []string) {
	for i, key := range keys {
		keys[i] = d.keyHash(n, name, key)
	}
}

var patternFields = []field[headgate.Pattern]{
	{Key: "in", Read: func(d *decoder, n *node, key string, p *headgate.Pattern) { p.Values = d.Texts(n, key) }},
	{Key: "not", Read: func(d *decoder, n *node, key string, p *headgate.Pattern) { p.Not = d.Texts(n, key) }},
	{Key: "prefix", Read: func(d *decoder, n *node, key string, p *headgate.Pattern) { p.Prefix, _ = d.Text(n, key) }},
	{Key: "cidr", Read: func(d *decoder, n *node, key string, p *headgate.Pattern) { p.CIDR = d.networks(n, key) }},
	{Key: "absent", Read: func(d *decoder, n *node, key string, p *headgate.Pattern) {
		p.Presence = headgate.Present
		if d.YesNo(n, key) {
			p.Presence = headgate.Absent
		}
	}},
}

// pattern reads what an attribute must be. It is not ok if something is wrong already, and what is left of it would
// only be misunderstood.
func (d *decoder) pattern(n *node, key string) (p headgate.Pattern, ok bool) {
	before := d.Report.Count()
	if n.Kind == yamldoc.Mapping {
		yamldoc.Fields(d, n, key, patternFields, &p)
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

// network reads 10.0.0.0/8; an address is a network of one.
func (d *decoder) network(n *node, key, s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		d.Bad(n, "%s: %q is no network: write it like 10.0.0.0/8 or 2001:db8::/32", key, yamldoc.Shorten(s))
	}
	return p, err == nil
}

// zone reads the name of a time zone.
func (d *decoder) zone(n *node, key string) *time.Location {
	s, ok := d.Text(n, key)
	if !ok {
		return nil
	}
	if zone, ok := d.known.zones[s]; ok {
		return zone
	}
	zone, err := time.LoadLocation(s)
	if err != nil || s == "" || strings.EqualFold(s, "local") {
		d.Bad(n, "%s: there is no time zone %q here: write a name like Europe/Berlin or UTC", key, yamldoc.Shorten(s))
		return nil
	}
	d.known.zones[s] = zone
	return zone
}
