package ruledoc

import "github.com/headgate/headgate"

// readPlan is limit and limits where they stand for themselves: in a tier, a candidate or an override.
type readPlan struct{ limit, limits *node }

var planFields = []field[readPlan]{
	{"limit", func(_ *decoder, n *node, _ string, p *readPlan) { p.limit = n }},
	{"limits", func(_ *decoder, n *node, _ string, p *readPlan) { p.limits = n }},
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
	case r.tiers.kind != mapping:
		d.bad(r.tiers, "tiers wants names with limits, {free: 100/minute}, not %s", describe(r.tiers))
	default:
		r.Tiers = make(map[string]headgate.Plan, len(r.tiers.entries))
		for _, e := range r.tiers.entries {
			if d.given(e) {
				r.Tiers[e.key.text] = d.plan(e.value, "tier "+e.key.text, r.like)
			}
		}
	}
}

// like is how a limit counts that stands in the place of the rule's own: as that one does, if it is no quota.
func (r *readRule) like(name string) how {
	l := r.Limit
	if name != "" {
		l = r.Limits[name]
	}
	if l.Count > 0 && l.Calendar == headgate.NoCalendar {
		return how{l.Algorithm, l.Align}
	}
	if r.algorithm != nil {
		return how{algorithm: *r.algorithm}
	}
	return how{}
}

// plan reads 100/minute, {limit: …} or {limits: {…}}.
func (d *decoder) plan(n *node, what string, like func(name string) how) headgate.Plan {
	if n.kind == text || n.kind == number {
		return headgate.Plan{Limit: d.limit(n, what, like(""))}
	}
	if n.kind != mapping {
		d.bad(n, "%s wants 100/minute, {limit: …} or {limits: {…}}, not %s", what, describe(n))
		return headgate.Plan{}
	}
	for _, key := range []string{"rate", "quota"} {
		if e, ok := n.get(key); ok {
			d.bad(e.key, "%s wants limit around this: {limit: {%s: …}}", what, key)
			return headgate.Plan{}
		}
	}
	var p readPlan
	fields(d, n, what, planFields, &p)
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
	if p.limits.kind != mapping {
		d.bad(p.limits, "limits wants names with limits, {peak: 5/second, daily: 1000/day}, not %s", describe(p.limits))
		return plan
	}
	plan.Limits = make(map[string]headgate.Limit, len(p.limits.entries))
	for _, e := range p.limits.entries {
		if d.given(e) {
			plan.Limits[e.key.text] = d.limit(e.value, "limit "+e.key.text, like(e.key.text))
		}
	}
	return plan
}
