package adminclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
)

// Remove removes what has this id below a path.
func (c *Client) Remove(ctx context.Context, path, id string) error {
	return c.call(ctx, http.MethodDelete, path+"/"+id, nil, nil)
}

// Overrides returns the overrides of a rule, "" of all, and of subjects with these attributes, at most so many, and whether
// there are more.
func (c *Client) Overrides(ctx context.Context, rule string, subject headgate.Attributes, most int) (
	all []adminapi.StoredOverride, more bool, err error,
) {
	filter := url.Values{}
	if rule != "" {
		filter.Set("rule", rule)
	}
	for name, value := range subject {
		filter.Add("subject", name+"="+value)
	}
	return list[adminapi.StoredOverride](ctx, c, adminapi.OverridesPath, "overrides", filter, most)
}

// SetOverride sets one override, and returns it as it is stored.
func (c *Client) SetOverride(ctx context.Context, o *adminapi.Override) (adminapi.StoredOverride, error) {
	return ask[adminapi.StoredOverride](ctx, c, http.MethodPost, adminapi.OverridesPath, o)
}

// SetOverrides sets all or none, and returns how many were not as they are already. A *DenialError because of one of them begins
// with "override" and its index.
func (c *Client) SetOverrides(ctx context.Context, all []adminapi.Override) (changed int, err error) {
	answer, err := ask[struct{ Changed int }](ctx, c, http.MethodPost, adminapi.OverridesPath, map[string]any{"overrides": all})
	return answer.Changed, err
}

// exemptionsOf is where the API has the exemptions from a rule, or from all.
func exemptionsOf(rule string) string {
	if rule == "" {
		return adminapi.ExemptionsPath
	}
	return rulePath(rule) + "/exemptions"
}

// Exemptions returns the exemptions from a rule, "" from any, at most so many, and whether there are more.
func (c *Client) Exemptions(ctx context.Context, rule string, most int) (all []adminapi.Exemption, more bool, err error) {
	return list[adminapi.Exemption](ctx, c, exemptionsOf(rule), "exemptions", url.Values{}, most)
}

// Exempt adds an exemption from a rule, "" from all, and returns it as it is stored.
func (c *Client) Exempt(ctx context.Context, rule string, x *adminapi.NewExemption) (adminapi.Exemption, error) {
	return ask[adminapi.Exemption](ctx, c, http.MethodPost, exemptionsOf(rule), x)
}
