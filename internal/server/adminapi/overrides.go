package adminapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// override is one as callers see it.
type override struct {
	ID        int64               `json:"overrideId"`
	Rule      string              `json:"rule"`
	LimitName string              `json:"limitName,omitempty"`
	Subject   headgate.Attributes `json:"subject"`
	Limit     string              `json:"limit"`
	Reason    string              `json:"reason"`
	ExpiresAt *time.Time          `json:"expiresAt,omitempty"`
	CreatedBy string              `json:"createdBy"`
	CreatedAt time.Time           `json:"createdAt"`
	UpdatedAt time.Time           `json:"updatedAt"`
}

func overrideOf(o *pgrules.Override) override {
	return override{o.ID, o.Rule, o.Limit, o.Subject, o.Text, o.Reason, o.Expires, o.CreatedBy, o.CreatedAt, o.UpdatedAt}
}

// newOverride is one that is wanted.
type newOverride struct {
	Rule      string              `json:"rule"`
	LimitName string              `json:"limitName"`
	Subject   headgate.Attributes `json:"subject"`
	Limit     string              `json:"limit"`
	Reason    string              `json:"reason"`
	ExpiresAt *time.Time          `json:"expiresAt"`
}

const overrideExample = `{"rule": "search-by-key", "subject": {"tenant": "acme"}, "limit": "5000/minute", ` +
	`"reason": "launch", "expiresAt": "2027-01-31T18:00:00Z"}, or {"overrides": […]} with up to 10000 of them`

func (a *api) listOverrides(w http.ResponseWriter, r *http.Request, by Caller) error {
	page, q, err := readPage(r, "rule", "subject")
	if err != nil {
		return err
	}
	which := pgrules.Which{Rule: q.Get("rule"), Tenant: by.Tenant}
	if which.Subject, err = readPairs(q, "subject"); err != nil {
		return err
	}
	all, err := a.DB.Overrides(r.Context(), which, page)
	if err != nil {
		return err
	}
	return answerPage(w, page, "overrides", all, func(o *pgrules.Override) int64 { return o.ID }, overrideOf)
}

// setOverrides takes one, or many as one.
func (a *api) setOverrides(w http.ResponseWriter, r *http.Request, by Caller) error {
	body, err := readBody(w, r, maxBulk)
	if err != nil {
		return err
	}
	var keys struct {
		Overrides json.RawMessage `json:"overrides"`
	}
	if json.Unmarshal(body, &keys) == nil && keys.Overrides != nil {
		return a.setMany(w, r, by, body)
	}
	one, err := parseLike[newOverride](body, overrideExample)
	if err != nil {
		return err
	}
	if _, err := a.set(r, by, one); err != nil {
		return err
	}
	which := pgrules.Which{Rule: one.Rule, Subject: one.Subject}
	there, err := a.DB.Overrides(r.Context(), which, pgrules.Page{Most: largestPage})
	if err != nil {
		return err
	}
	for i := range there {
		if o := &there[i]; o.Limit == one.LimitName {
			w.Header().Set("Location", fmt.Sprintf("%s/%d", overridesPath, o.ID))
			return answer(w, http.StatusCreated, overrideOf(o))
		}
	}
	return fmt.Errorf("%w: it was removed at once", pgrules.ErrConflict)
}

func (a *api) setMany(w http.ResponseWriter, r *http.Request, by Caller, body []byte) error {
	wanted, err := parseLike[struct {
		Overrides []newOverride `json:"overrides"`
	}](body, overrideExample)
	if err != nil {
		return err
	}
	changed, err := a.set(r, by, wanted.Overrides...)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, struct {
		Changed int64 `json:"changed"`
	}{changed})
}

func (a *api) set(r *http.Request, by Caller, wanted ...newOverride) (changed int64, err error) {
	overrides := make([]pgrules.Override, len(wanted))
	mine := map[string]error{}
	for i := range wanted {
		o := &wanted[i]
		if _, known := mine[o.Rule]; !known {
			mine[o.Rule] = a.mayChange(r, by, o.Rule, fmt.Errorf("rule %q: %w", o.Rule, pgrules.ErrNotFound))
		}
		err := mine[o.Rule]
		if err == nil {
			err = checkExpiry(o.ExpiresAt)
		}
		if err != nil {
			p := *problemOf(err)
			p.Detail = fmt.Sprintf("override %d: %s", i, p.Detail)
			return 0, &p
		}
		overrides[i] = pgrules.Override{
			Rule: o.Rule, Limit: o.LimitName, Subject: o.Subject, Text: o.Limit, Reason: o.Reason, Expires: o.ExpiresAt,
		}
	}
	return a.DB.SetOverrides(r.Context(), by.who(""), overrides)
}

func (a *api) removeOverride(w http.ResponseWriter, r *http.Request, by Caller) error {
	ruleOf := func(id int64) (string, error) {
		o, err := a.DB.Override(r.Context(), id)
		return o.Rule, err
	}
	return a.remove(w, r, by, "override", ruleOf, a.DB.RemoveOverride)
}
