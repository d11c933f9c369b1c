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

// OwnUsage returns the usage of the token's owner, of all rules that count by it.
func (c *Client) OwnUsage(ctx context.Context) ([]adminapi.Usage, error) {
	own, err := get[struct{ Usage []adminapi.Usage }](ctx, c, http.MethodGet, adminapi.UsagePath+"/me", nil)
	return own.Usage, err
}

// Usage returns the usage of a rule by a subject.
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
	return get[adminapi.Usage](ctx, c, http.MethodGet, adminapi.UsagePath+"?"+q.Encode(), nil)
}

// Give returns units of a rule to a subject, and then returns the subject's usage. The action is reset or grant.
func (c *Client) Give(ctx context.Context, action, rule string, credit *adminapi.Credit) (adminapi.Usage, error) {
	return get[adminapi.Usage](ctx, c, http.MethodPost, rulePath(rule)+"/"+action, credit)
}

// Release releases the units of a rule that a holder has.
func (c *Client) Release(ctx context.Context, rule string, r *adminapi.Release) (adminapi.Released, error) {
	return get[adminapi.Released](ctx, c, http.MethodPost, rulePath(rule)+"/release", r)
}
