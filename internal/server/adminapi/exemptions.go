package adminapi

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// Exemption is a stored exemption. Without a rule it applies to all rules.
type Exemption = pgrules.Exemption

// NewExemption is an exemption to be added.
type NewExemption struct {
	SubjectType  string `json:"subjectType"`
	SubjectValue string `json:"subjectValue"`
	// APIKey is the key itself. Only its hash is stored.
	APIKey    string     `json:"apiKey,omitzero"`
	Reason    string     `json:"reason"`
	ExpiresAt *time.Time `json:"expiresAt,omitzero"`
}

const exemptionExample = `{"subjectType": "user", "subjectValue": "ann", "reason": "load test", ` +
	`"expiresAt": "2027-01-31T18:00:00Z"}`

// pathRule returns the rule in the path, or the zero Rule if the path has none.
func (a *api) pathRule(c *call) (found Rule, err error) {
	if name := c.PathValue("ruleId"); name != "" {
		found, err = a.rule(c, name)
	}
	return found, err
}

func (a *api) listExemptions(c *call) (any, error) {
	id := func(x *Exemption) int64 { return x.ID }
	return list(c, "exemptions", id, nil, func(_ url.Values, page pgrules.Page) ([]Exemption, error) {
		found, err := a.pathRule(c)
		if err != nil {
			return nil, err
		}
		return a.DB.Exemptions(c.Context(), pgrules.ExceptionFilter{Rule: found.UUID, Tenant: c.by.Tenant}, page)
	})
}

func (a *api) addExemption(c *call) (any, error) {
	found, err := a.pathRule(c)
	if err != nil {
		return nil, err
	}
	request, err := read[NewExemption](c, exemptionExample)
	if err != nil {
		return nil, err
	}
	if request.APIKey != "" {
		if request.SubjectType != "api_key" || request.SubjectValue != "" {
			return nil, unprocessable(`apiKey: requires "subjectType": "api_key", and no subjectValue`)
		}
		request.SubjectValue = request.APIKey
	}
	if err := checkExpiry(request.ExpiresAt); err != nil {
		return nil, err
	}
	added, err := a.DB.AddExemption(c.Context(), c.by.who(""), Exemption{
		Rule: found.Name, SubjectType: request.SubjectType, SubjectValue: request.SubjectValue, Reason: request.Reason,
		ExpiresAt: request.ExpiresAt,
	})
	return created{fmt.Sprintf("%s/%d", ExemptionsPath, added.ID), added}, err
}

func (a *api) removeExemption(c *call) (any, error) {
	ruleOf := func(id int64) (string, error) {
		x, err := a.DB.Exemption(c.Context(), id)
		return x.Rule, err
	}
	return nil, a.remove(c, "exemption", ruleOf, a.DB.RemoveExemption)
}

// remove removes the object with the number in the path, if the caller may change the rule that it belongs to.
func (a *api) remove(
	c *call, what string, ruleOf func(id int64) (string, error), remove func(context.Context, pgrules.Who, int64) error,
) error {
	id, err := c.pathNumber(what + "Id")
	if err != nil {
		return err
	}
	rule, err := ruleOf(id)
	if err == nil {
		err = a.mayChange(c, rule, fmt.Errorf("%s %d: %w", what, id, pgrules.ErrNotFound))
	}
	if err == nil {
		err = remove(c.Context(), c.by.who(""), id)
	}
	return err
}

// mayChange returns nil if the caller may change the rule, and thus its overrides and exemptions. Otherwise it returns rejection.
func (a *api) mayChange(c *call, rule string, rejection error) error {
	if c.by.Tenant == "" {
		return nil
	}
	if rule == "" {
		return rejection
	}
	found, err := a.DB.Rule(c.Context(), rule)
	if err == nil && !c.by.owns(found.Owner) {
		err = rejection
	}
	return err
}

func checkExpiry(at *time.Time) error {
	if at != nil && !at.After(time.Now()) {
		return unprocessable("expiresAt %s: in the past: send a future time, or omit it "+
			"for no expiry", at.Format(time.RFC3339))
	}
	return nil
}
