package adminapi

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// Override is an override to be set.
type Override = pgrules.Override

// StoredOverride is a stored override.
type StoredOverride = pgrules.StoredOverride

const overrideExample = `{"rule": "search-by-key", "subject": {"tenant": "acme"}, "limit": "5000/minute", ` +
	`"reason": "launch", "expiresAt": "2027-01-31T18:00:00Z"}, or {"overrides": […]} with up to 10000 of them`

func (a *api) listOverrides(c *call) (any, error) {
	id := func(o *StoredOverride) int64 { return o.ID }
	return list(c, "overrides", id, []string{"rule", "subject"}, func(q url.Values, page pgrules.Page) ([]StoredOverride, error) {
		subject, err := readPairs(q, "subject")
		if err != nil {
			return nil, err
		}
		return a.DB.Overrides(c.Context(), pgrules.ExceptionFilter{Rule: q.Get("rule"), Tenant: c.by.Tenant, Subject: subject}, page)
	})
}

// setOverrides sets one override, or many atomically.
func (a *api) setOverrides(c *call) (any, error) {
	body, err := c.readBody(maxBulk)
	if err != nil {
		return nil, err
	}
	var keys struct {
		Overrides json.RawMessage `json:"overrides"`
	}
	if json.Unmarshal(body, &keys) == nil && keys.Overrides != nil {
		request, err := parseLike[struct {
			Overrides []Override `json:"overrides"`
		}](body, overrideExample)
		if err != nil {
			return nil, err
		}
		changed, err := a.set(c, request.Overrides...)
		return map[string]int64{"changed": changed}, err
	}
	one, err := parseLike[Override](body, overrideExample)
	if err != nil {
		return nil, err
	}
	if _, err := a.set(c, one); err != nil {
		return nil, err
	}
	filter := pgrules.ExceptionFilter{Rule: one.Rule, Subject: one.Subject}
	stored, err := a.DB.Overrides(c.Context(), filter, pgrules.Page{Limit: maxPage})
	if err != nil {
		return nil, err
	}
	for i := range stored {
		if o := &stored[i]; o.LimitName == one.LimitName {
			return created{fmt.Sprintf("%s/%d", OverridesPath, o.ID), o}, nil
		}
	}
	return nil, fmt.Errorf("%w: removed by another caller", pgrules.ErrConflict)
}

func (a *api) set(c *call, overrides ...Override) (changed int64, err error) {
	checked := map[string]error{}
	for i := range overrides {
		o := &overrides[i]
		if _, known := checked[o.Rule]; !known {
			checked[o.Rule] = a.mayChange(c, o.Rule, fmt.Errorf("rule %q: %w", o.Rule, pgrules.ErrNotFound))
		}
		err := checked[o.Rule]
		if err == nil {
			err = checkExpiry(o.ExpiresAt)
		}
		if err != nil {
			p := *problemOf(err)
			p.Detail = fmt.Sprintf("override %d: %s", i, p.Detail)
			return 0, &p
		}
	}
	return a.DB.SetOverrides(c.Context(), c.by.who(""), overrides)
}

func (a *api) removeOverride(c *call) (any, error) {
	ruleOf := func(id int64) (string, error) {
		o, err := a.DB.Override(c.Context(), id)
		return o.Rule, err
	}
	return nil, a.remove(c, "override", ruleOf, a.DB.RemoveOverride)
}
