package ruledoc

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// readOverride is an override with what only matters while it is read.
type readOverride struct {
	headgate.Override
	plan readPlan
}

var overrideFields = []field[readOverride]{
	{"rule", func(d *decoder, n *node, key string, o *readOverride) { o.Rule, _ = d.text(n, key) }},
	{"subject", func(d *decoder, n *node, key string, o *readOverride) { o.Subject = d.subject(n, key) }},
	{"limit", func(_ *decoder, n *node, _ string, o *readOverride) { o.plan.limit = n }},
	{"limits", func(_ *decoder, n *node, _ string, o *readOverride) { o.plan.limits = n }},
	{"expires", func(d *decoder, n *node, key string, o *readOverride) { o.Expires = d.instant(n, key) }},
	{"reason", func(d *decoder, n *node, key string, o *readOverride) { o.Reason, _ = d.text(n, key) }},
}

// override reads an override of one of the rules, which says how its limits count and what they are by.
func (d *decoder) override(n *node, rules map[string]*readRule) headgate.Override {
	var o readOverride
	before := d.report.count
	fields(d, n, "an override", overrideFields, &o)
	if d.report.count > before || n.kind != mapping {
		return o.Override
	}
	r := rules[o.Rule]
	switch {
	case o.Rule == "":
		d.bad(n, "an override needs the id of its rule: rule: search-by-key")
	case r == nil:
		d.noRule(n.find([]string{"rule"}), o.Rule, rules)
	case o.plan.limit == nil && o.plan.limits == nil:
		d.bad(n, "an override needs the limit that the subject has instead: limit: 5000/minute")
	default:
		plan := d.limits(o.plan, r.like)
		o.Limit, o.Limits = plan.Limit, plan.Limits
		if d.report.count == before {
			d.checkOverride(n, &o, r)
		}
	}
	return o.Override
}

func (d *decoder) checkOverride(n *node, o *readOverride, r *readRule) {
	check := func(l headgate.Limit, path ...string) {
		if err := l.Validate(); err != nil {
			d.bad(n.find(path), "%s: %s", strings.Join(path, "."), err)
		}
	}
	if o.plan.limit != nil {
		if names := slices.Sorted(maps.Keys(r.Limits)); r.limit == nil && len(names) > 0 {
			d.bad(o.plan.limit, "rule %q has no limit without a name; it has %s: write {limits: {%s: …}}", r.ID,
				strings.Join(names, ", "), names[0])
		}
		check(o.Limit, "limit")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Limits)) {
		if _, ok := r.Limits[name]; !ok {
			d.bad(n.find([]string{"limits", name}), "rule %q has no limit %q for this to replace", r.ID, name)
		}
		check(o.Limits[name], "limits", name)
	}
	d.checkSubject(n, o.Subject, r)
}

// checkSubject says whether a subject has the attributes that a rule counts by, and no others.
func (d *decoder) checkSubject(n *node, subject headgate.Attributes, r *readRule) {
	at := n.find([]string{"subject"})
	if len(r.By) == 0 {
		d.bad(at, "rule %q counts everybody together, so there is nobody to override: change the rule itself", r.ID)
		return
	}
	left := maps.Clone(subject)
	var needs []string
	for _, name := range r.By {
		stands, needed := name, name
		if name == "client" {
			stands, _ = left.Client()
			needed = "api_key or user or ip"
		}
		if left[stands] == "" {
			needs = append(needs, needed)
		}
		delete(left, stands)
	}
	by := strings.Join(r.By, ", ")
	switch {
	case len(needs) > 0:
		d.bad(at, "the subject needs %s: rule %q counts by %s", strings.Join(needs, ", "), r.ID, by)
	case len(left) > 0:
		surplus := strings.Join(slices.Sorted(maps.Keys(left)), ", ")
		d.bad(at, "the subject has %s too many: rule %q counts by %s", surplus, r.ID, by)
	}
}

func (d *decoder) subject(n *node, key string) headgate.Attributes {
	if n.kind != mapping {
		d.bad(n, "%s wants the attributes that the rule counts by, {tenant: acme}, not %s", key, describe(n))
		return nil
	}
	subject := headgate.Attributes{}
	for _, e := range n.entries {
		if d.given(e) {
			subject[e.key.text], _ = d.text(e.value, e.key.text)
		}
	}
	return subject
}

func (d *decoder) noRule(n *node, id string, rules map[string]*readRule) {
	if near := nearest(id, slices.Sorted(maps.Keys(rules))); near != "" {
		d.bad(n, "there is no rule %q; did you mean %q?", shorten(id), near)
		return
	}
	d.bad(n, "there is no rule %q", shorten(id))
}

// readExemption is an exemption with what only matters while it is read.
type readExemption struct {
	headgate.Exemption
	of []string // the keys that say who is exempt
}

var exemptionFields = []field[readExemption]{
	{"rule", func(d *decoder, n *node, key string, x *readExemption) { x.Rule, _ = d.text(n, key) }},
	{"api_key", exempt},
	{"user", exempt},
	{"service_account", exempt},
	{"ip_cidr", func(d *decoder, n *node, key string, x *readExemption) {
		exempt(d, n, key, x)
		x.Attribute = "ip"
		p, ok := d.network(n, key, x.Value)
		if ok && p != p.Masked() {
			d.bad(n, "%s: %s has bits set beyond its prefix: write %s", key, p, p.Masked())
		} else if ok && p.Addr().Is4In6() {
			d.bad(n, "%s: %s is IPv4 in the clothes of IPv6: write it as IPv4", key, p)
		}
		x.Value = netip.Prefix.String(p)
	}},
	{"expires", func(d *decoder, n *node, key string, x *readExemption) { x.Expires = d.instant(n, key) }},
	{"reason", func(d *decoder, n *node, key string, x *readExemption) { x.Reason, _ = d.text(n, key) }},
}

func exempt(d *decoder, n *node, key string, x *readExemption) {
	x.of = append(x.of, key)
	x.Attribute = key
	x.Value, _ = d.text(n, key)
}

func (d *decoder) exemption(n *node, rules map[string]*readRule) headgate.Exemption {
	var x readExemption
	before := d.report.count
	fields(d, n, "an exemption", exemptionFields, &x)
	if d.report.count > before || n.kind != mapping {
		return x.Exemption
	}
	if e, ok := n.get("rule"); ok && rules[x.Rule] == nil {
		d.noRule(e.value, x.Rule, rules)
	}
	switch {
	case len(x.of) == 0:
		d.bad(n, "an exemption needs one of api_key, user, service_account and ip_cidr")
	case len(x.of) > 1:
		d.bad(n, "an exemption is for one of %s: make one for each", strings.Join(x.of, ", "))
	case x.Value == "":
		d.bad(n, "%s is empty", x.of[0])
	}
	return x.Exemption
}
