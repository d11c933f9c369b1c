package adminapi

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// Exemption is one that was added; without a rule it is from all.
type Exemption = pgrules.Exemption

// NewExemption is one to be added.
type NewExemption struct {
	SubjectType  string `json:"subjectType"`
	SubjectValue string `json:"subjectValue"`
	// APIKey is a key itself, of which the hash is stored.
	APIKey    string     `json:"apiKey,omitzero"`
	Reason    string     `json:"reason"`
	ExpiresAt *time.Time `json:"expiresAt,omitzero"`
}

const exemptionExample = `{"subjectType": "user", "subjectValue": "ann", "reason": "load test", ` +
	`"expiresAt": "2027-01-31T18:00:00Z"}`

// exempted is the rule in the path, or nothing for all.
func (a *api) exempted(c *call) (found Rule, err error) {
	if name := c.PathValue("ruleId"); name != "" {
		found, err = a.rule(c, name)
	}
	return found, err
}

func (a *api) listExemptions(c *call) (any, error) {
	id := func(x *Exemption) int64 { return x.ID }
	return list(c, "exemptions", id, nil, func(_ url.Values, page pgrules.Page) ([]Exemption, error) {
		found, err := a.exempted(c)
		if err != nil {
			return nil, err
		}
		return a.DB.Exemptions(c.Context(), pgrules.ExceptionFilter{Rule: found.UUID, Tenant: c.by.Tenant}, page)
	})
}

func (a *api) addExemption(c *call) (any, error) {
	found, err := a.exempted(c)
	if err != nil {
		return nil, err
	}
	wanted, err := read[NewExemption](c, exemptionExample)
	if err != nil {
		return nil, err
	}
	if wanted.APIKey != "" {
		if wanted.SubjectType != "api_key" || wanted.SubjectValue != "" {
			return nil, unusable(`apiKey goes with "subjectType": "api_key" and without subjectValue`)
		}
		wanted.SubjectValue = wanted.APIKey
	}
	if err := checkExpiry(wanted.ExpiresAt); err != nil {
		return nil, err
	}
	made, err := a.DB.AddExemption(c.Context(), c.by.who(""), Exemption{
		Rule: found.Name, SubjectType: wanted.SubjectType, SubjectValue: wanted.SubjectValue, Reason: wanted.Reason,
		ExpiresAt: wanted.ExpiresAt,
	})
	return created{fmt.Sprintf("%s/%d", ExemptionsPath, made.ID), made}, err
}

func (a *api) removeExemption(c *call) (any, error) {
	ruleOf := func(id int64) (string, error) {
		x, err := a.DB.Exemption(c.Context(), id)
		return x.Rule, err
	}
	return nil, a.remove(c, "exemption", ruleOf, a.DB.RemoveExemption)
}

// remove removes what has the number in the path, if the rule that it belongs to is the caller's to change.
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

// mayChange is nil if what belongs to a rule is the caller's to change, which is so if the rule is. Else it is what is
// wrong.
func (a *api) mayChange(c *call, rule string, wrong error) error {
	if c.by.Tenant == "" {
		return nil
	}
	if rule == "" {
		return wrong
	}
	found, err := a.DB.Rule(c.Context(), rule)
	if err == nil && !c.by.owns(found.Owner) {
		err = wrong
	}
	return err
}

func checkExpiry(at *time.Time) error {
	if at != nil && !at.After(time.Now()) {
		return unusable("expiresAt is %s, which is over: send a time to come, or leave it out "+
			"for no end", at.Format(time.RFC3339))
	}
	return nil
}
