package adminapi

import (
	"context"
	"fmt"
	"net/http"
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

// listExemptions are those of the rule in the path, or all.
func (a *api) listExemptions(w http.ResponseWriter, r *http.Request, by Caller) error {
	page, _, err := readPage(r)
	if err != nil {
		return err
	}
	which := pgrules.Which{Tenant: by.Tenant}
	if r.PathValue("ruleId") != "" {
		found, err := a.rule(r, by)
		if err != nil {
			return err
		}
		which.Rule = found.UUID
	}
	all, err := a.DB.Exemptions(r.Context(), which, page)
	if err != nil {
		return err
	}
	return answerPage(w, page, "exemptions", all, func(x *Exemption) int64 { return x.ID })
}

// addExemption is from the rule in the path, or from all.
func (a *api) addExemption(w http.ResponseWriter, r *http.Request, by Caller) error {
	var found pgrules.Rule
	if r.PathValue("ruleId") != "" {
		var err error
		if found, err = a.rule(r, by); err != nil {
			return err
		}
	}
	wanted, err := read[NewExemption](w, r, maxBody, exemptionExample)
	if err != nil {
		return err
	}
	if wanted.APIKey != "" {
		if wanted.SubjectType != "api_key" || wanted.SubjectValue != "" {
			return unusable(`apiKey goes with "subjectType": "api_key" and without subjectValue`)
		}
		wanted.SubjectValue = wanted.APIKey
	}
	if err := checkExpiry(wanted.ExpiresAt); err != nil {
		return err
	}
	made, err := a.DB.AddExemption(r.Context(), by.who(""), Exemption{
		Rule: found.Name, SubjectType: wanted.SubjectType, SubjectValue: wanted.SubjectValue, Reason: wanted.Reason,
		ExpiresAt: wanted.ExpiresAt,
	})
	if err != nil {
		return err
	}
	w.Header().Set("Location", fmt.Sprintf("%s/%d", exemptionsPath, made.ID))
	return answer(w, http.StatusCreated, made)
}

func (a *api) removeExemption(w http.ResponseWriter, r *http.Request, by Caller) error {
	ruleOf := func(id int64) (string, error) {
		x, err := a.DB.Exemption(r.Context(), id)
		return x.Rule, err
	}
	return a.remove(w, r, by, "exemption", ruleOf, a.DB.RemoveExemption)
}

// remove removes what has the number in the path, if the rule that it belongs to is the caller's to change.
func (a *api) remove(
	w http.ResponseWriter, r *http.Request, by Caller, what string,
	ruleOf func(id int64) (string, error), remove func(context.Context, pgrules.Who, int64) error,
) error {
	id, err := pathNumber(r, what+"Id")
	if err != nil {
		return err
	}
	rule, err := ruleOf(id)
	if err == nil {
		err = a.mayChange(r, by, rule, fmt.Errorf("%s %d: %w", what, id, pgrules.ErrNotFound))
	}
	if err == nil {
		err = remove(r.Context(), by.who(""), id)
	}
	return answerRemoved(w, err)
}

// mayChange is nil if what belongs to a rule is the caller's to change, which is so if the rule is. Else it is what is
// wrong.
func (a *api) mayChange(r *http.Request, by Caller, rule string, wrong error) error {
	if by.Tenant == "" {
		return nil
	}
	if rule == "" {
		return wrong
	}
	found, err := a.DB.Rule(r.Context(), rule)
	if err == nil && !by.owns(found.Owner) {
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
