package ruledoc

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// parsedOverride is an override with the state that only decoding and encoding need.
type parsedOverride struct {
	headgate.Override
	plan parsedPlan
}

var overrideKeys = newObject(
	textField("rule", "ID of the rule", func(o *parsedOverride) *string { return &o.Rule }).withDefault("required"),
	field[parsedOverride]{
		key: "subject", doc: "values of the attributes in the rule's `by`; for a rule by `client`, one of `api_key`, `user` and `ip`", unset: "required",
		schema: `"type": "object", "propertyNames": {"$ref": "#/$defs/attribute"}, "additionalProperties": {"type": "string", "minLength": 1}`,
		read:   func(d *decoder, n *node, key string, o *parsedOverride) { o.Subject = d.subject(n, key) },
		write:  func(e *encoder, what string, o *parsedOverride) *node { return e.texts(what, o.Subject) },
	},
	limitField(func(o *parsedOverride) *parsedPlan { return &o.plan }).withDefault("`limit` or `limits` required"),
	limitsField(func(o *parsedOverride) *parsedPlan { return &o.plan }).withDefault("`limit` or `limits` required"),
	timeField("expires", "when the override ends", func(o *parsedOverride) *time.Time { return &o.Expires }),
	textField("reason", "free text for people", func(o *parsedOverride) *string { return &o.Reason }),
)

// override decodes an override. The overridden rule provides the defaults of its limits and the attributes of its subject.
func (d *decoder) override(n *node, rules map[string]*parsedRule) headgate.Override {
	var o parsedOverride
	before := d.Report.Count()
	overrideKeys.read(d, n, "an override", &o)
	if d.Report.Count() > before || n.Kind != yamldoc.Mapping {
		return o.Override
	}
	r := rules[o.Rule]
	switch {
	case o.Rule == "":
		d.Bad(n, "rule: required: add the ID of the overridden rule, like rule: search-by-key")
	case r == nil:
		d.notFound(n.Find([]string{"rule"}), ruleNotFound(o.Rule), o.Rule, slices.Sorted(maps.Keys(rules)))
	case r.Counter != "":
		d.Bad(n.Find([]string{"rule"}), "%s", chargesOther(&r.Rule))
	case o.plan.limit == nil && o.plan.limits == nil:
		d.Bad(n, "limit: required: add the limit of the subject, like limit: 5000/minute")
	default:
		plan := d.limits(&o.plan, r.overrideDefaults)
		o.Limit, o.Limits = plan.Limit, plan.Limits
		if d.Report.Count() == before {
			d.checkOverride(n, &o, r)
		}
	}
	return o.Override
}

func (d *decoder) checkOverride(n *node, o *parsedOverride, r *parsedRule) {
	check := func(l headgate.Limit, path ...string) {
		if err := l.Validate(); err != nil {
			d.Bad(n.Find(path), "%s: %s", strings.Join(path, "."), err)
		}
	}
	if o.plan.limit != nil {
		if names := slices.Sorted(maps.Keys(r.Limits)); r.own.limit == nil && len(names) > 0 {
			d.Bad(o.plan.limit, "limit: rule %q has only named limits (%s): write {limits: {%s: …}}", r.ID,
				strings.Join(names, ", "), names[0])
		}
		check(o.Limit, "limit")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Limits)) {
		if _, ok := r.Limits[name]; !ok {
			d.Bad(n.Find([]string{"limits", name}), "limits.%s: rule %q has no limit %q to replace", name, r.ID, name)
		}
		check(o.Limits[name], "limits", name)
	}
	if err := CheckSubject(&r.Rule, o.Subject); err != nil {
		d.Bad(n.Find([]string{"subject"}), "%s", err)
	}
}

// CheckSubject returns an error unless an override's subject has exactly the attributes of the rule's By.
func CheckSubject(r *headgate.Rule, subject headgate.Attributes) error {
	if r.Counter != "" {
		return errors.New(chargesOther(r))
	}
	if len(r.By) == 0 {
		return fmt.Errorf("subject: rule %q has by: [] and thus no subjects to override: change the rule's own limit", r.ID)
	}
	rest := maps.Clone(subject)
	var missing []string
	for _, name := range r.By {
		attribute, required := name, name
		if name == "client" {
			attribute, _ = rest.Client()
			required = "api_key or user or ip"
		}
		if rest[attribute] == "" {
			missing = append(missing, required)
		}
		delete(rest, attribute)
	}
	by := strings.Join(r.By, ", ")
	switch {
	case len(missing) > 0:
		return fmt.Errorf("subject: missing %s: rule %q counts by %s", strings.Join(missing, ", "), r.ID, by)
	case len(rest) > 0:
		surplus := strings.Join(slices.Sorted(maps.Keys(rest)), ", ")
		return fmt.Errorf("subject: unexpected %s: rule %q counts by %s", surplus, r.ID, by)
	}
	return nil
}

func (d *decoder) subject(n *node, key string) headgate.Attributes {
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s: must map the attributes in the rule's by to values, like {tenant: acme}, not %s", key, n.Describe())
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

// keyHash returns the hash of an API key, so that keys themselves are neither stored nor shown.
func (d *decoder) keyHash(n *node, key, value string) string {
	hash, err := headgate.ParseKeyHash(value)
	if err != nil {
		d.Bad(n, "%s: %s", key, err)
	}
	return hash
}

// chargesOther returns the problem of a reference to the counters of a rule that has none.
func chargesOther(r *headgate.Rule) string {
	return fmt.Sprintf("rule %q charges the counters of rule %q: write %s", r.ID, r.Counter, r.Counter)
}

// ruleNotFound returns the problem of a reference to a rule that does not exist.
func ruleNotFound(id string) string { return fmt.Sprintf("rule %q not found", yamldoc.Shorten(id)) }

// notFound reports that a name is not among the known ones, and suggests the nearest of them.
func (d *decoder) notFound(n *node, problem, name string, known []string) {
	if near := yamldoc.Nearest(name, known); near != "" {
		problem += fmt.Sprintf("; did you mean %q?", near)
	}
	d.Bad(n, "%s", problem)
}

// parsedExemption is an exemption with the state that only decoding needs.
type parsedExemption struct {
	headgate.Exemption
	of []string // the keys that name the exempt subject
}

var exemptionKeys = newObject(
	textField("rule", "ID of the rule", func(x *parsedExemption) *string { return &x.Rule }).withDefault("all rules"),
	exemptionField("api_key", "API key or its hash", "api_key", (*decoder).keyHash),
	exemptionField("user", "user", "user", nil),
	exemptionField("service_account", "service account", "service_account", nil),
	exemptionField("ip_cidr", "network: `10.0.0.0/8`", "ip", (*decoder).exemptNetwork),
	timeField("expires", "when the exemption ends", func(x *parsedExemption) *time.Time { return &x.Expires }),
	textField("reason", "free text for people", func(x *parsedExemption) *string { return &x.Reason }),
)

// exemptionField returns a field for a key that exempts subjects by an attribute. Check, if not nil, validates the value and
// converts it to its stored form.
func exemptionField(key, doc, attribute string, check func(d *decoder, n *node, key, value string) string) field[parsedExemption] {
	return field[parsedExemption]{
		key: key, doc: doc, unset: "exactly one of these is required", schema: `"type": "string", "minLength": 1`,
		read: func(d *decoder, n *node, key string, x *parsedExemption) {
			x.of = append(x.of, key)
			x.Attribute = attribute
			if x.Value, _ = d.Text(n, key); check != nil {
				x.Value = check(d, n, key, x.Value)
			}
		},
		write: func(e *encoder, what string, x *parsedExemption) *node {
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
		d.Bad(n, "%s: %s has bits set after its prefix: write %s", key, p, p.Masked())
	} else if ok && p.Addr().Is4In6() {
		d.Bad(n, "%s: %s is an IPv4-mapped IPv6 network: write it as IPv4", key, p)
	}
	return p.String()
}

func (d *decoder) exemption(n *node, rules map[string]*parsedRule) headgate.Exemption {
	var x parsedExemption
	before := d.Report.Count()
	exemptionKeys.read(d, n, "an exemption", &x)
	if d.Report.Count() > before || n.Kind != yamldoc.Mapping {
		return x.Exemption
	}
	if e, ok := n.Get("rule"); ok && rules[x.Rule] == nil {
		d.notFound(e.Value, ruleNotFound(x.Rule), x.Rule, slices.Sorted(maps.Keys(rules)))
	}
	switch {
	case len(x.of) == 0:
		d.Bad(n, "an exemption requires one of api_key, user, service_account and ip_cidr: add one")
	case len(x.of) > 1:
		d.Bad(n, "an exemption can have only one of %s: write one exemption for each", strings.Join(x.of, ", "))
	case x.Value == "":
		d.Bad(n, "%s: must not be empty", x.of[0])
	}
	return x.Exemption
}
