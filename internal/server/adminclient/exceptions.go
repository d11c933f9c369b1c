package adminclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
)

// Remove deletes the object with this id below a collection's path.
func (c *Client) Remove(ctx context.Context, path, id string) error {
	return c.call(ctx, http.MethodDelete, path+"/"+id, nil, nil)
}

// Overrides returns up to limit overrides of a rule, or of all rules if rule is "", and of subjects with these attributes. It also
// reports whether there are more.
func (c *Client) Overrides(ctx context.Context, rule string, subject headgate.Attributes, limit int) (
	all []adminapi.StoredOverride, more bool, err error,
) {
	filter := url.Values{}
	if rule != "" {
		filter.Set("rule", rule)
	}
	for name, value := range subject {
		filter.Add("subject", name+"="+value)
	}
	return list[adminapi.StoredOverride](ctx, c, adminapi.OverridesPath, "overrides", filter, limit)
}

// SetOverride sets one override, and returns it as it is stored.
func (c *Client) SetOverride(ctx context.Context, o *adminapi.Override) (adminapi.StoredOverride, error) {
	return get[adminapi.StoredOverride](ctx, c, http.MethodPost, adminapi.OverridesPath, o)
}

// SetOverrides sets all overrides or none, and returns how many changed. If one of them is rejected, the detail of the *StatusError
// begins with "override" and its index.
func (c *Client) SetOverrides(ctx context.Context, all []adminapi.Override) (changed int, err error) {
	response, err := get[struct{ Changed int }](ctx, c, http.MethodPost, adminapi.OverridesPath, map[string]any{"overrides": all})
	return response.Changed, err
}

// exemptionsOf returns the path of the exemptions from a rule, or of those from all rules if rule is "".
func exemptionsOf(rule string) string {
	if rule == "" {
		return adminapi.ExemptionsPath
	}
	return rulePath(rule) + "/exemptions"
}

// Exemptions returns up to limit exemptions from a rule, or all exemptions if rule is "", and reports whether there are more.
func (c *Client) Exemptions(ctx context.Context, rule string, limit int) (all []adminapi.Exemption, more bool, err error) {
	return list[adminapi.Exemption](ctx, c, exemptionsOf(rule), "exemptions", url.Values{}, limit)
}

// Exempt adds an exemption from a rule, or from all rules if rule is "", and returns it as it is stored.
func (c *Client) Exempt(ctx context.Context, rule string, x *adminapi.NewExemption) (adminapi.Exemption, error) {
	return get[adminapi.Exemption](ctx, c, http.MethodPost, exemptionsOf(rule), x)
}
