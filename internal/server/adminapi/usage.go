package adminapi

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/ruledoc"
)

// Usage is the usage of a rule by a subject.
type Usage struct {
	Rule    string              `json:"rule"`
	Subject headgate.Attributes `json:"subject"`
	// Limited is false if the subject is exempt or the rule is off. Limits is empty then.
	Limited bool         `json:"limited"`
	Limits  []LimitUsage `json:"limits"`
	// RegionProblems are the regions that may not have given units back.
	RegionProblems []RegionProblem `json:"regionProblems,omitempty"`
}

// usage is a Usage together with the limit that would deny the subject first.
type usage struct {
	RuleID string `json:"ruleId"`
	Usage
	*LimitUsage
}

// LimitUsage is the usage of one limit by a subject.
type LimitUsage struct {
	Name      string    `json:"name,omitempty"`
	Limit     int64     `json:"limit"`
	Remaining int64     `json:"remaining"`
	ResetAt   time.Time `json:"resetAt"`
	// WindowSeconds is null for a calendar limit and for a concurrency limit.
	WindowSeconds *float64 `json:"windowSeconds"`
	Calendar      string   `json:"calendar,omitempty"`
	// Concurrent is true for a concurrency limit. ResetAt is when the last lease of its units ends then.
	Concurrent bool `json:"concurrent,omitempty"`
	// Origin is rule, tier or override.
	Origin string `json:"origin"`
	// Enforced is false for a limit that denies no requests.
	Enforced bool `json:"enforced"`
	// LocalShare is true if Redis, or the home, is unavailable. Remaining and ResetAt are those of the server's local fallback share then.
	LocalShare bool `json:"localShare,omitempty"`
	// Share is this region's share of a limit that regions share, and Regions the usage in all regions. Remaining and ResetAt are those of
	// the share.
	Share   *int64           `json:"share,omitempty"`
	Regions *explain.Regions `json:"regions,omitempty"`
	// Home is the region that counts the subject, if the rule has regions: home.
	Home *explain.Home `json:"home,omitempty"`
}

// left returns the remaining fraction of the limit.
func (l *LimitUsage) left() float64 {
	of := l.Limit
	if l.Share != nil {
		of = *l.Share
	}
	return float64(l.Remaining) / float64(max(of, 1))
}

// usageOf returns the usage of a rule from the decision of a peek.
func (a *api) usageOf(ruleID, rule string, subject headgate.Attributes, d *headgate.Decision, regions map[int]*explain.Regions) usage {
	u := usage{RuleID: ruleID, Usage: Usage{Rule: rule, Subject: subject, Limits: []LimitUsage{}}}
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Origin == headgate.FromCandidate {
			continue
		}
		one := LimitUsage{
			Name: l.Name, Limit: l.Limit.Capacity(), Remaining: l.Remaining, ResetAt: l.Time.Add(l.ResetAfter).UTC(),
			Origin: l.Origin.String(), Enforced: l.Enforced, LocalShare: l.DecidedBy() == headgate.PathLocal,
		}
		if l.Shared {
			one.Share, one.Regions = new(l.Share), regions[i]
		}
		if home := a.homeOf(l); home != nil {
			one.Home = &explain.Home{Name: home.Name, Own: home.Own} // without the problem, which has addresses: clients may read their usage
		}
		switch {
		case l.Limit.Algorithm == headgate.Concurrency:
			one.Concurrent = true
		case l.Limit.Calendar == headgate.NoCalendar:
			one.WindowSeconds = new(l.Limit.Window.Seconds())
		default:
			one.Calendar = l.Limit.Calendar.String()
		}
		u.Limits = append(u.Limits, one)
	}
	for i := range u.Limits {
		if l := &u.Limits[i]; u.LimitUsage == nil || l.left() < u.left() {
			u.Limited, u.LimitUsage = true, l
		}
	}
	return u
}

func (a *api) readUsage(c *call) (any, error) {
	q := c.URL.Query()
	kind, value, id := q.Get("subjectType"), q.Get("subjectId"), q.Get("ruleId")
	if kind == "" || value == "" || id == "" {
		return nil, badRequest("subjectType, subjectId and ruleId: required: send subjectType=api_key&subjectId=…&ruleId=…, and the other " +
			"attributes that the rule counts by as parameters, such as tenant=acme")
	}
	attributes := headgate.Attributes{kind: value}
	for name := range q {
		if !slices.Contains([]string{"subjectType", "subjectId", "ruleId"}, name) {
			attributes[name] = q.Get(name)
		}
	}
	if c.by.Tenant != "" && attributes["tenant"] == "" {
		attributes["tenant"] = c.by.Tenant
	}
	rule, err := a.ruleInForce(c, id)
	if err != nil {
		return nil, err
	}
	if !countsTenant(&rule, c.by.Tenant) || !c.by.owns(attributes["tenant"]) {
		return nil, notFound("rule %q: does not count subjects of tenant %s, and %s may not read those of others", id, c.by.Tenant, c.by.Name)
	}
	return a.peek(c, id, &rule, attributes)
}

// peek returns the usage of a rule by a subject. The attributes are those of the subject, and optionally its tier.
func (a *api) peek(c *call, id string, rule *headgate.Rule, attributes headgate.Attributes) (usage, error) {
	subject := maps.Clone(attributes)
	if !slices.Contains(rule.By, "tier") {
		delete(subject, "tier")
	}
	if len(rule.By) > 0 {
		if err := ruledoc.CheckSubject(rule, subject); err != nil {
			return usage{}, badRequest("%s", err)
		}
	}
	request := headgate.Request{Attributes: attributes, Rule: rule.ID}
	if err := check.Validate(request); err != nil {
		return usage{}, badRequest("%s", err)
	}
	d, err := a.limiter.Peek(c.Context(), request)
	switch {
	case err != nil:
		return usage{}, notFound("%s", err)
	case d.Path == headgate.PathFailed:
		return usage{}, a.undecided(d.Limits, subject, headgate.ErrUnavailable)
	}
	regions := map[int]*explain.Regions{}
	a.addRegions(c.Context(), d.Limits, func(i int, r *explain.Regions) { regions[i] = r })
	return a.usageOf(id, rule.ID, subject, &d, regions), nil
}

// ruleInForce returns the rule in force with a name or UUID. The rule has counters of its own.
func (a *api) ruleInForce(c *call, id string) (headgate.Rule, error) {
	name := id
	if a.DB != nil && uuid.MatchString(id) {
		found, err := a.DB.Rule(c.Context(), id)
		if err != nil {
			return headgate.Rule{}, err
		}
		name = found.Name
	}
	rule, ok := a.limiter.Rules().Rule(name)
	switch {
	case !ok:
		return rule, notInForce(id)
	case rule.Counter != "":
		return rule, withoutCounters(id)
	}
	return rule, nil
}

func notInForce(rule string) *problem { return notFound("rule %q: not in force on this server", rule) }

// withoutCounters returns the problem of a rule that charges the counters of another.
func withoutCounters(rule string) *problem {
	return notFound("rule %q: has no counters of its own: use the rule that its key counter names", rule)
}

// countsTenant reports whether a rule counts the requests of a tenant separately from those of others. It is true for "".
func countsTenant(rule *headgate.Rule, tenant string) bool {
	if tenant == "" {
		return true
	}
	p := rule.Match.Attributes["tenant"]
	return slices.Contains(rule.By, "tenant") && !slices.Contains(p.Not, tenant) &&
		(len(p.Values) == 0 || slices.Contains(p.Values, tenant))
}
