package ruledoc

import (
	"maps"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// readPlan is limit and limits: those of a rule, a tier, a candidate or an override.
type readPlan struct {
	limit, limits *node // as they are read
	// As they are written: like is how a limit counts that does not say it itself.
	headgate.Plan
	like func(name string) how
}

var planKeys = objectOf(
	limitField(func(p *readPlan) *readPlan { return p }),
	limitsField(func(p *readPlan) *readPlan { return p }),
)

func limitField[T any](of func(*T) *readPlan) field[T] {
	return field[T]{
		key: "limit", doc: "how much: `10/minute`, `{rate: 10/minute, burst: 20}` or `{quota: 1000, calendar: month}`", unset: "none",
		schema: `"$ref": "#/$defs/limit"`,
		read:   func(_ *decoder, n *node, _ string, into *T) { of(into).limit = n },
		write: func(e *encoder, what string, from *T) *node {
			p := of(from)
			if p.Limit == (headgate.Limit{}) {
				return nil
			}
			return e.limit(within(what, "limit"), p.Limit, p.like(""))
		},
	}
}

func limitsField[T any](of func(*T) *readPlan) field[T] {
	return field[T]{
		key: "limits", unset: "none",
		doc: "several limits on one subject, each with a name: `{peak: 5/second, daily: 1000/day}`; a request is charged on all of them " +
			"or on none",
		schema: `"$ref": "#/$defs/limits"`,
		read:   func(_ *decoder, n *node, _ string, into *T) { of(into).limits = n },
		write: func(e *encoder, what string, from *T) *node {
			p := of(from)
			if len(p.Limits) == 0 {
				return nil
			}
			named := mapping()
			for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
				put(named, name, e.limit(within(what, "limits")+"."+name, p.Limits[name], p.like(name)))
			}
			return named
		},
	}
}

// within names a key of what, if it is not that already.
func within(what, key string) string {
	if what == key {
		return key
	}
	return what + "." + key
}

// readLimits reads all limits of a rule.
func (d *decoder) readLimits(r *readRule) {
	var like how
	if r.algorithm != nil {
		like.algorithm = *r.algorithm
	}
	always := func(string) how { return like }
	own := d.limits(&r.own, always)
	r.Limit, r.Limits = own.Limit, own.Limits
	if r.candidate != nil {
		r.Candidate = d.plan(r.candidate, "candidate", r.like)
	}
	switch {
	case r.tiers == nil:
	case r.tiers.Kind != yamldoc.Mapping:
		d.Bad(r.tiers, "tiers wants names with limits, {free: 100/minute}, not %s", r.tiers.Describe())
	default:
		r.Tiers = make(map[string]headgate.Plan, len(r.tiers.Entries))
		for _, e := range r.tiers.Entries {
			if d.HasValue(e) {
				r.Tiers[e.Key.Text] = d.plan(e.Value, "tier "+e.Key.Text, r.like)
			}
		}
	}
}

// ownLimit returns the rule's limit of that name.
func (r *readRule) ownLimit(name string) headgate.Limit {
	if name != "" {
		return r.Limits[name]
	}
	return r.Limit
}

// likeOverride is how the limit of an override counts.
func (r *readRule) likeOverride(name string) how {
	like := r.like(name)
	like.burstOf = r.ownLimit(name)
	return like
}

// like is how a limit counts that stands in the place of the rule's own.
func (r *readRule) like(name string) how {
	if like, ok := howOf(r.ownLimit(name)); ok {
		return like
	}
	if r.algorithm != nil {
		return how{algorithm: *r.algorithm}
	}
	return how{}
}

// plan reads 100/minute, {limit: …} or {limits: {…}}.
func (d *decoder) plan(n *node, what string, like func(name string) how) headgate.Plan {
	if n.Kind == yamldoc.Text || n.Kind == yamldoc.Number {
		return headgate.Plan{Limit: d.limit(n, what, like(""))}
	}
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "%s wants 100/minute, {limit: …} or {limits: {…}}, not %s", what, n.Describe())
		return headgate.Plan{}
	}
	for _, key := range []string{"rate", "quota"} {
		if e, ok := n.Get(key); ok {
			d.Bad(e.Key, "%s wants limit around this: {limit: {%s: …}}", what, key)
			return headgate.Plan{}
		}
	}
	var p readPlan
	planKeys.read(d, n, what, &p)
	return d.limits(&p, like)
}

func (d *decoder) limits(p *readPlan, like func(name string) how) headgate.Plan {
	var plan headgate.Plan
	if p.limit != nil {
		plan.Limit = d.limit(p.limit, "limit", like(""))
	}
	if p.limits == nil {
		return plan
	}
	if p.limits.Kind != yamldoc.Mapping {
		d.Bad(p.limits, "limits wants names with limits, {peak: 5/second, daily: 1000/day}, not %s", p.limits.Describe())
		return plan
	}
	plan.Limits = make(map[string]headgate.Limit, len(p.limits.Entries))
	for _, e := range p.limits.Entries {
		if d.HasValue(e) {
			plan.Limits[e.Key.Text] = d.limit(e.Value, "limit "+e.Key.Text, like(e.Key.Text))
		}
	}
	return plan
}

func (e *encoder) plan(where string, p headgate.Plan, like func(name string) how) *node {
	n := planKeys.write(e, where, &readPlan{Plan: p, like: like})
	switch {
	case len(n.Entries) == 0:
		return nil
	case len(n.Entries) == 1 && n.Entries[0].Value.Kind == yamldoc.Text:
		return n.Entries[0].Value
	}
	return n
}

func (e *encoder) tiers(what string, tiers map[string]headgate.Plan, like func(name string) how) *node {
	if len(tiers) == 0 {
		return nil
	}
	n := mapping()
	for _, tier := range slices.Sorted(maps.Keys(tiers)) {
		e.text(what, tier)
		put(n, tier, e.plan(what+"."+tier, tiers[tier], like))
	}
	return n
}
