package ruledoc

import (
	"maps"
	"slices"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// parsedPlan is the keys limit and limits of a rule, a tier, a candidate or an override.
type parsedPlan struct {
	limit, limits *node // for decoding
	// For encoding: defaults returns the defaults of a limit by its name.
	headgate.Plan
	defaults func(name string) limitDefaults
}

var planKeys = newObject(
	limitField(func(p *parsedPlan) *parsedPlan { return p }),
	limitsField(func(p *parsedPlan) *parsedPlan { return p }),
)

func limitField[T any](of func(*T) *parsedPlan) field[T] {
	return field[T]{
		key: "limit", doc: "the limit: `10/minute`, `{rate: 10/minute, burst: 20}`, `{quota: 1000, calendar: month}` or `{concurrent: 20}`", unset: "none",
		schema: `"$ref": "#/$defs/limit"`,
		read:   func(_ *decoder, n *node, _ string, into *T) { of(into).limit = n },
		write: func(e *encoder, what string, from *T) *node {
			p := of(from)
			if p.Limit == (headgate.Limit{}) {
				return nil
			}
			return e.limit(joinKey(what, "limit"), p.Limit, p.defaults(""))
		},
	}
}

func limitsField[T any](of func(*T) *parsedPlan) field[T] {
	return field[T]{
		key: "limits", unset: "none",
		doc:    "several named limits on one subject: `{peak: 5/second, daily: 1000/day}`; a request is charged to all of them or to none",
		schema: `"$ref": "#/$defs/limits"`,
		read:   func(_ *decoder, n *node, _ string, into *T) { of(into).limits = n },
		write: func(e *encoder, what string, from *T) *node {
			p := of(from)
			if len(p.Limits) == 0 {
				return nil
			}
			named := mappingNode()
			for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
				put(named, name, e.limit(joinKey(what, "limits")+"."+name, p.Limits[name], p.defaults(name)))
			}
			return named
		},
	}
}

// joinKey appends a key to the name of its mapping, unless that is the key's own name.
func joinKey(what, key string) string {
	if what == key {
		return key
	}
	return what + "." + key
}

// readLimits decodes all limits of a rule.
func (d *decoder) readLimits(r *parsedRule) {
	var defaults limitDefaults
	if r.algorithm != nil {
		defaults.algorithm = *r.algorithm
	}
	always := func(string) limitDefaults { return defaults }
	own := d.limits(&r.own, always)
	r.Limit, r.Limits = own.Limit, own.Limits
	if r.candidate != nil {
		r.Candidate = d.plan(r.candidate, "candidate", r.defaults)
	}
	switch {
	case r.tiers == nil:
	case r.tiers.Kind != yamldoc.Mapping:
		d.Bad(r.tiers, "tiers: must map names to limits, like {free: 100/minute}, not %s", r.tiers.Describe())
	default:
		r.Tiers = make(map[string]headgate.Plan, len(r.tiers.Entries))
		for _, e := range r.tiers.Entries {
			if d.HasValue(e) {
				r.Tiers[e.Key.Text] = d.plan(e.Value, "tier "+strconv.Quote(e.Key.Text), r.defaults)
			}
		}
	}
}

// ownLimit returns the rule's own limit with this name; "" is the one without a name.
func (r *parsedRule) ownLimit(name string) headgate.Limit {
	if name != "" {
		return r.Limits[name]
	}
	return r.Limit
}

// overrideDefaults returns the defaults of an override's limit with this name.
func (r *parsedRule) overrideDefaults(name string) limitDefaults {
	defaults := r.defaults(name)
	defaults.replaced = r.ownLimit(name)
	return defaults
}

// defaults returns the defaults of a limit that replaces the rule's own one with this name.
func (r *parsedRule) defaults(name string) limitDefaults {
	defaults, isRate := defaultsFrom(r.ownLimit(name))
	if !isRate && r.algorithm != nil {
		defaults.algorithm = *r.algorithm
	}
	return defaults
}

// plan decodes 100/minute, {limit: …} or {limits: {…}}.
func (d *decoder) plan(n *node, what string, defaults func(name string) limitDefaults) headgate.Plan {
	if n.Kind == yamldoc.Text || n.Kind == yamldoc.Number {
		return headgate.Plan{Limit: d.limit(n, what, defaults(""))}
	}
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s: must be 100/minute, {limit: …} or {limits: {…}}, not %s", what, n.Describe())
		return headgate.Plan{}
	}
	for _, key := range []string{"rate", "quota", "concurrent"} {
		if e, ok := n.Get(key); ok {
			d.Bad(e.Key, "%s: %s must be within limit: write {limit: {%s: …}}", what, key, key)
			return headgate.Plan{}
		}
	}
	var p parsedPlan
	planKeys.read(d, n, what, &p)
	return d.limits(&p, defaults)
}

func (d *decoder) limits(p *parsedPlan, defaults func(name string) limitDefaults) headgate.Plan {
	var plan headgate.Plan
	if p.limit != nil {
		plan.Limit = d.limit(p.limit, "limit", defaults(""))
	}
	if p.limits == nil {
		return plan
	}
	if p.limits.Kind != yamldoc.Mapping {
		d.Bad(p.limits, "limits: must map names to limits, like {peak: 5/second, daily: 1000/day}, not %s", p.limits.Describe())
		return plan
	}
	plan.Limits = make(map[string]headgate.Limit, len(p.limits.Entries))
	for _, e := range p.limits.Entries {
		if d.HasValue(e) {
			plan.Limits[e.Key.Text] = d.limit(e.Value, "limit "+strconv.Quote(e.Key.Text), defaults(e.Key.Text))
		}
	}
	return plan
}

func (e *encoder) plan(where string, p headgate.Plan, defaults func(name string) limitDefaults) *node {
	n := planKeys.write(e, where, &parsedPlan{Plan: p, defaults: defaults})
	switch {
	case len(n.Entries) == 0:
		return nil
	case len(n.Entries) == 1 && n.Entries[0].Value.Kind == yamldoc.Text:
		return n.Entries[0].Value
	}
	return n
}

func (e *encoder) tiers(what string, tiers map[string]headgate.Plan, defaults func(name string) limitDefaults) *node {
	if len(tiers) == 0 {
		return nil
	}
	n := mappingNode()
	for _, tier := range slices.Sorted(maps.Keys(tiers)) {
		e.text(what, tier)
		put(n, tier, e.plan(what+"."+tier, tiers[tier], defaults))
	}
	return n
}
