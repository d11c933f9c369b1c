package ruledoc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// readOverride is an override with what only matters while it is read or written.
type readOverride struct {
	headgate.Override
	plan readPlan
}

var overrideKeys = objectOf(
	textField("rule", "the id of the rule", func(o *readOverride) *string { return &o.Rule }).or("must be given"),
	field[readOverride]{
		key: "subject", doc: "the attributes that the rule counts by; of a rule by `client` one of `api_key`, `user` and `ip`", unset: "must be given",
		schema: `"type": "object", "propertyNames": {"$ref": "#/$defs/attribute"}, "additionalProperties": {"type": "string", "minLength": 1}`,
		read:   func(d *decoder, n *node, key string, o *readOverride) { o.Subject = d.subject(n, key) },
		write:  func(e *encoder, what string, o *readOverride) *node { return e.texts(what, o.Subject) },
	},
	limitField(func(o *readOverride) *readPlan { return &o.plan }).or("one must be given"),
	limitsField(func(o *readOverride) *readPlan { return &o.plan }).or("one must be given"),
	instantField("expires", "when the override ends", func(o *readOverride) *time.Time { return &o.Expires }),
	textField("reason", "for people", func(o *readOverride) *string { return &o.Reason }),
)

const noRule = "there is no rule"

// override reads an override of one of the rules, which says how its limits count and what they are by.
func (d *decoder) override(n *node, rules map[string]*readRule) headgate.Override {
	var o readOverride
	before := d.Report.Count()
	overrideKeys.read(d, n, "an override", &o)
	if d.Report.Count() > before || n.Kind != yamldoc.Mapping {
		return o.Override
	}
	r := rules[o.Rule]
	switch {
	case o.Rule == "":
		d.Bad(n, "an override needs the id of its rule: rule: search-by-key")
	case r == nil:
		d.notThere(n.Find([]string{"rule"}), noRule, o.Rule, slices.Sorted(maps.Keys(rules)))
	case o.plan.limit == nil && o.plan.limits == nil:
		d.Bad(n, "an override needs the limit that the subject has instead: limit: 5000/minute")
	default:
		plan := d.limits(&o.plan, r.likeOverride)
		o.Limit, o.Limits = plan.Limit, plan.Limits
		if d.Report.Count() == before {
			d.checkOverride(n, &o, r)
		}
	}
	return o.Override
}

func (d *decoder) checkOverride(n *node, o *readOverride, r *readRule) {
	check := func(l headgate.Limit, path ...string) {
		if err := l.Validate(); err != nil {
			d.Bad(n.Find(path), "%s: %s", strings.Join(path, "."), err)
		}
	}
	if o.plan.limit != nil {
		if names := slices.Sorted(maps.Keys(r.Limits)); r.own.limit == nil && len(names) > 0 {
			d.Bad(o.plan.limit, "rule %q has no limit without a name; it has %s: write {limits: {%s: …}}", r.ID,
				strings.Join(names, ", "), names[0])
		}
		check(o.Limit, "limit")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Limits)) {
		if _, ok := r.Limits[name]; !ok {
			d.Bad(n.Find([]string{"limits", name}), "rule %q has no limit %q for this to replace", r.ID, name)
		}
		check(o.Limits[name], "limits", name)
	}
	if err := CheckSubject(&r.Rule, o.Subject); err != nil {
		d.Bad(n.Find([]string{"subject"}), "%s", err)
	}
}

// CheckSubject says whether an override's subject has the attributes that a rule counts by, and no others.
func CheckSubject(r *headgate.Rule, subject headgate.Attributes) error {
	if len(r.By) == 0 {
		return fmt.Errorf("rule %q counts everybody together, so there is nobody to override: change the rule itself", r.ID)
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
		return fmt.Errorf("the subject needs %s: rule %q counts by %s", strings.Join(needs, ", "), r.ID, by)
	case len(left) > 0:
		surplus := strings.Join(slices.Sorted(maps.Keys(left)), ", ")
		return fmt.Errorf("the subject has %s too many: rule %q counts by %s", surplus, r.ID, by)
	}
	return nil
}

func (d *decoder) subject(n *node, key string) headgate.Attributes {
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s wants the attributes that the rule counts by, {tenant: acme}, not %s", key, n.Describe())
		return nil
	}
	subject := headgate.Attributes{}
	for _, e := range n.Entries {
		if d.HasValue(e) {
			subject[e.Key.Text], _ = d.Text(e.Value, e.Key.Text)
		}
		if name := e.Key.Text; headgate.IsKeyAttribute(name) {
			subject[name] = d.keyHash(e.Value, name, subject[name])
		}
	}
	return subject
}

// keyHash keeps API keys themselves out of what is stored and shown.
func (d *decoder) keyHash(n *node, key, value string) string {
	hash, err := headgate.ParseKeyHash(value)
	if err != nil {
		d.Bad(n, "%s: %s", key, err)
	}
	return hash
}

// notThere notes that there is none of this name among the known; what says none of what.
func (d *decoder) notThere(n *node, what, name string, known []string) {
	if near := yamldoc.Nearest(name, known); near != "" {
		d.Bad(n, "%s %q; did you mean %q?", what, yamldoc.Shorten(name), near)
		return
	}
	d.Bad(n, "%s %q", what, yamldoc.Shorten(name))
}

// readExemption is an exemption with what only matters while it is read.
type readExemption struct {
	headgate.Exemption
	of []string // the keys that say who is exempt
}

var exemptionKeys = objectOf(
	textField("rule", "the id of the rule", func(x *readExemption) *string { return &x.Rule }).or("all rules"),
	exemptField("api_key", "whose key, or its hash", "api_key", (*decoder).keyHash),
	exemptField("user", "which user", "user", nil),
	exemptField("service_account", "which service account", "service_account", nil),
	exemptField("ip_cidr", "a network: `10.0.0.0/8`", "ip", (*decoder).exemptNetwork),
	instantField("expires", "when the exemption ends", func(x *readExemption) *time.Time { return &x.Expires }),
	textField("reason", "for people", func(x *readExemption) *string { return &x.Reason }),
)

// exemptField is one of the keys that say who is exempt, by the attribute that it is about. Check, if there is one, brings the value
// into the form that is stored.
func exemptField(key, doc, attribute string, check func(d *decoder, n *node, key, value string) string) field[readExemption] {
	return field[readExemption]{
		key: key, doc: doc, unset: "one of these must be given", schema: `"type": "string", "minLength": 1`,
		read: func(d *decoder, n *node, key string, x *readExemption) {
			x.of = append(x.of, key)
			x.Attribute = attribute
			if x.Value, _ = d.Text(n, key); check != nil {
				x.Value = check(d, n, key, x.Value)
			}
		},
		write: func(e *encoder, what string, x *readExemption) *node {
			if x.Attribute != attribute {
				return nil
			}
			return e.text(what, x.Value)
		},
	}
}

func (d *decoder) exemptNetwork(n *node, key, value string) string {
	p, ok := d.network(n, key, value)
	if ok && p != p.Masked() {
		d.Bad(n, "%s: %s has bits set beyond its prefix: write %s", key, p, p.Masked())
	} else if ok && p.Addr().Is4In6() {
		d.Bad(n, "%s: %s is IPv4 in the clothes of IPv6: write it as IPv4", key, p)
	}
	return p.String()
}

func (d *decoder) exemption(n *node, rules map[string]*readRule) headgate.Exemption {
	var x readExemption
	before := d.Report.Count()
	exemptionKeys.read(d, n, "an exemption", &x)
	if d.Report.Count() > before || n.Kind != yamldoc.Mapping {
		return x.Exemption
	}
	if e, ok := n.Get("rule"); ok && rules[x.Rule] == nil {
		d.notThere(e.Value, noRule, x.Rule, slices.Sorted(maps.Keys(rules)))
	}
	switch {
	case len(x.of) == 0:
		d.Bad(n, "an exemption needs one of api_key, user, service_account and ip_cidr")
	case len(x.of) > 1:
		d.Bad(n, "an exemption is for one of %s: make one for each", strings.Join(x.of, ", "))
	case x.Value == "":
		d.Bad(n, "%s is empty", x.of[0])
	}
	return x.Exemption
}
