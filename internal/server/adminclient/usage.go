package adminclient

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
)

// OwnUsage returns what the token's owner has left of all rules that count by them.
func (c *Client) OwnUsage(ctx context.Context) ([]adminapi.Usage, error) {
	own, err := ask[struct{ Usage []adminapi.Usage }](ctx, c, http.MethodGet, adminapi.UsagePath+"/me", nil)
	return own.Usage, err
}

// Usage returns what a subject has left of a rule.
func (c *Client) Usage(ctx context.Context, rule string, subject headgate.Attributes) (adminapi.Usage, error) {
	q := url.Values{"ruleId": {rule}}
	for i, name := range slices.Sorted(maps.Keys(subject)) {
		if i == 0 {
			q.Set("subjectType", name)
			q.Set("subjectId", subject[name])
			continue
		}
		q.Set(name, subject[name])
	}
	return ask[adminapi.Usage](ctx, c, http.MethodGet, adminapi.UsagePath+"?"+q.Encode(), nil)
}

// Give gives a subject back what it has used of a rule, and returns what it has then. The action is reset or grant.
func (c *Client) Give(ctx context.Context, action, rule string, credit *adminapi.Credit) (adminapi.Usage, error) {
	return ask[adminapi.Usage](ctx, c, http.MethodPost, rulePath(rule)+"/"+action, credit)
}
