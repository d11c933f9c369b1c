package ruledoc

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// readPlan is limit and limits where they stand for themselves: in a tier, a candidate or an override.
type readPlan struct{ limit, limits *node }

var planFields = []field[readPlan]{
	{Key: "limit", Read: func(_ *decoder, n *node, _ string, p *readPlan) { p.limit = n }},
	{Key: "limits", Read: func(_ *decoder, n *node, _ string, p *readPlan) { p.limits = n }},
}

// readLimits reads all limits of a rule.
func (d *decoder) readLimits(r *readRule) {
	var like how
	if r.algorithm != nil {
		like.algorithm = *r.algorithm
	}
	always := func(string) how { return like }
	own := d.limits(readPlan{r.limit, r.limits}, always)
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
			if d.Given(e) {
				r.Tiers[e.Key.Text] = d.plan(e.Value, "tier "+e.Key.Text, r.like)
			}
		}
	}
}

// own is the rule's limit of that name.
func (r *readRule) own(name string) headgate.Limit {
	if name != "" {
		return r.Limits[name]
	}
	return r.Limit
}

// likeOverride is how the limit of an override counts.
func (r *readRule) likeOverride(name string) how {
	like := r.like(name)
	like.burstOf = r.own(name)
	return like
}

// like is how a limit counts that stands in the place of the rule's own.
func (r *readRule) like(name string) how {
	if like, ok := howOf(r.own(name)); ok {
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
	yamldoc.Fields(d, n, what, planFields, &p)
	return d.limits(p, like)
}

func (d *decoder) limits(p readPlan, like func(name string) how) headgate.Plan {
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
		if d.Given(e) {
			plan.Limits[e.Key.Text] = d.limit(e.Value, "limit "+e.Key.Text, like(e.Key.Text))
		}
	}
	return plan
}
