package adminapi

import (
	"net/http"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/ruledoc"
)

// ownUsage is what the subject of a token has left. Beside the list stands, in the flat shape, the rule that would deny it first.
type ownUsage struct {
	Tenant  string              `json:"tenant,omitempty"`
	Subject headgate.Attributes `json:"subject"`
	RuleID  string              `json:"ruleId,omitempty"`
	*LimitUsage
	Usage []usage `json:"usage"`
}

// readOwnUsage answers with what the subject of the token, a tenant, a user or an API key, has left of all rules that count by nothing
// else.
func (a *api) readOwnUsage(c *call) (any, error) {
	own := ownUsage{Tenant: c.by.Tenant, Subject: c.by.subject(), Usage: []usage{}}
	only := headgate.Rule{}
	if id := c.URL.Query().Get("ruleId"); id != "" {
		var err error
		if only, err = a.ruleInForce(c, id); err != nil {
			return nil, err
		}
	}
	var asks []headgate.BatchRequest
	for _, rule := range a.limiter.Rules().Rules() {
		subject, ok := countedBy(&rule, own.Subject)
		if ok && (only.ID == "" || only.ID == rule.ID) && len(asks) < largestPage {
			asks = append(asks, headgate.BatchRequest{Request: headgate.Request{Attributes: subject, Rule: rule.ID}, Peek: true})
		}
	}
	decisions, err := a.limiter.CheckAll(c.Context(), asks)
	if err != nil {
		return nil, newProblem(http.StatusConflict, "the rules have just been changed: try again")
	}
	for i := range decisions {
		if decisions[i].Path == headgate.PathFailed {
			return nil, a.storeAway(headgate.ErrUnavailable)
		}
		if c.by.Role == Self { // a client, who sees what its responses show
			decisions[i].Limits = slices.DeleteFunc(decisions[i].Limits, func(l headgate.LimitDecision) bool { return !l.Exposed })
			if len(decisions[i].Limits) == 0 {
				continue
			}
		}
		one := usageOf(asks[i].Rule, asks[i].Rule, asks[i].Attributes, &decisions[i])
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

// countedBy returns those attributes of a subject that a rule counts by, and false if it counts by others too, or not this subject.
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
	if ruledoc.CheckSubject(rule, counted) != nil || !concerns(rule, subject["tenant"]) && counted["tenant"] != "" {
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
