package adminclient

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

const usagePath = "/v1/rate-limit/usage"

// Usage is what a subject has left of a rule.
type Usage struct {
	Rule    string              `json:"rule"`
	Subject headgate.Attributes `json:"subject"`
	// Limited is false for a subject that is exempt, and for a rule that is off.
	Limited bool         `json:"limited"`
	Limits  []LimitUsage `json:"limits"`
}

// LimitUsage is what is left of one limit.
type LimitUsage struct {
	Name          string    `json:"name,omitzero"`
	Limit         int64     `json:"limit"`
	Remaining     int64     `json:"remaining"`
	ResetAt       time.Time `json:"resetAt"`
	WindowSeconds *float64  `json:"windowSeconds"`
	Calendar      string    `json:"calendar,omitzero"`
	Origin        string    `json:"origin"`
	Enforced      bool      `json:"enforced"`
	// LocalShare says that Redis did not answer, and what is left is left of the server's local fallback share.
	LocalShare bool `json:"localShare,omitzero"`
}

// OwnUsage returns what the token's owner has left of all rules that count by them.
func (c *Client) OwnUsage(ctx context.Context) ([]Usage, error) {
	own, err := ask[struct{ Usage []Usage }](ctx, c, http.MethodGet, usagePath+"/me", nil)
	return own.Usage, err
}

// Usage returns what a subject has left of a rule.
func (c *Client) Usage(ctx context.Context, rule string, subject headgate.Attributes) (Usage, error) {
	q := url.Values{"ruleId": {rule}}
	for i, name := range slices.Sorted(maps.Keys(subject)) {
		if i == 0 {
			q.Set("subjectType", name)
			q.Set("subjectId", subject[name])
			continue
		}
		q.Set(name, subject[name])
	}
	return ask[Usage](ctx, c, http.MethodGet, usagePath+"?"+q.Encode(), nil)
}

// Credit is what a subject is given back.
type Credit struct {
	Subject headgate.Attributes `json:"subject"`
	// Units is 0 for all.
	Units  int64  `json:"units,omitzero"`
	Reason string `json:"reason,omitzero"`
}

// Give gives a subject back what it has used of a rule, and returns what it has then. The action is reset or grant.
func (c *Client) Give(ctx context.Context, action, rule string, credit *Credit) (Usage, error) {
	return ask[Usage](ctx, c, http.MethodPost, rulePath(rule)+"/"+action, credit)
}
