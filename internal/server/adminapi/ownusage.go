package adminapi

import (
	"net/http"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/ruledoc"
)

// ownUsage is the usage of the subject of a token. In addition to the list it has the rule and the limit that would deny the subject first.
type ownUsage struct {
	Tenant  string              `json:"tenant,omitempty"`
	Subject headgate.Attributes `json:"subject"`
	RuleID  string              `json:"ruleId,omitempty"`
	*LimitUsage
	Usage []usage `json:"usage"`
}

// readOwnUsage returns the usage of the token's subject, which is a tenant, a user or an API key, of all rules that count by the
// subject's attributes only.
func (a *api) readOwnUsage(c *call) (any, error) {
	own := ownUsage{Tenant: c.by.Tenant, Subject: c.by.subject(), Usage: []usage{}}
	only := headgate.Rule{}
	if id := c.URL.Query().Get("ruleId"); id != "" {
		var err error
		if only, err = a.ruleInForce(c, id); err != nil {
			return nil, err
		}
	}
	var requests []headgate.BatchRequest
	for _, rule := range a.limiter.Rules().Rules() {
		subject, ok := countedBy(&rule, own.Subject)
		if ok && (only.ID == "" || only.ID == rule.ID) && len(requests) < maxPage {
			requests = append(requests, headgate.BatchRequest{Request: headgate.Request{Attributes: subject, Rule: rule.ID}, Peek: true})
		}
	}
	decisions, err := a.limiter.CheckAll(c.Context(), requests)
	if err != nil {
		return nil, newProblem(http.StatusConflict, "the rules were changed during the call: try again")
	}
	for i := range decisions {
		if decisions[i].Path == headgate.PathFailed {
			return nil, a.undecided(decisions[i].Limits, requests[i].Attributes, headgate.ErrUnavailable)
		}
		if c.by.Role == Self { // a client sees only the limits that its responses expose
			decisions[i].Limits = slices.DeleteFunc(decisions[i].Limits, func(l headgate.LimitDecision) bool { return !l.Exposed })
			if len(decisions[i].Limits) == 0 {
				continue
			}
		}
		one := a.usageOf(requests[i].Rule, requests[i].Rule, requests[i].Attributes, &decisions[i], nil)
		own.Usage = append(own.Usage, one)
		if one.Limited && (own.LimitUsage == nil || one.left() < own.left()) {
			own.RuleID, own.LimitUsage = one.RuleID, one.LimitUsage
		}
	}
	if only.ID != "" && len(own.Usage) == 0 {
		return nil, notInForce(c.URL.Query().Get("ruleId"))
	}
	return own, nil
}

// countedBy returns the attributes of a subject that a rule counts by. It returns false if the rule also counts by other attributes, or
// does not count this subject.
func countedBy(rule *headgate.Rule, subject headgate.Attributes) (headgate.Attributes, bool) {
	counted := headgate.Attributes{}
	for _, name := range rule.By {
		if name == "client" {
			name, _ = subject.Client()
		}
		if value := subject[name]; value != "" {
			counted[name] = value
		}
	}
	if ruledoc.CheckSubject(rule, counted) != nil || !countsTenant(rule, subject["tenant"]) && counted["tenant"] != "" {
		return nil, false
	}
	for name, value := range subject {
		p, ok := rule.Match.Attributes[name]
		same := func(v string) bool { return v == value || name == "api_key" && headgate.EnsureKeyHash(v) == value }
		if ok && (slices.ContainsFunc(p.Not, same) || len(p.Values) > 0 && !slices.ContainsFunc(p.Values, same)) {
			return nil, false
		}
	}
	return counted, true
}
