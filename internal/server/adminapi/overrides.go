package adminapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// Override is one to be set.
type Override = pgrules.Override

// StoredOverride is one that was set.
type StoredOverride = pgrules.StoredOverride

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
	return answerPage(w, page, "overrides", all, func(o *StoredOverride) int64 { return o.ID })
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
	one, err := parseLike[Override](body, overrideExample)
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
		if o := &there[i]; o.LimitName == one.LimitName {
			w.Header().Set("Location", fmt.Sprintf("%s/%d", overridesPath, o.ID))
			return answer(w, http.StatusCreated, o)
		}
	}
	return fmt.Errorf("%w: it was removed at once", pgrules.ErrConflict)
}

func (a *api) setMany(w http.ResponseWriter, r *http.Request, by Caller, body []byte) error {
	wanted, err := parseLike[struct {
		Overrides []Override `json:"overrides"`
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

func (a *api) set(r *http.Request, by Caller, wanted ...Override) (changed int64, err error) {
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
	}
	return a.DB.SetOverrides(r.Context(), by.who(""), wanted)
}

func (a *api) removeOverride(w http.ResponseWriter, r *http.Request, by Caller) error {
	ruleOf := func(id int64) (string, error) {
		o, err := a.DB.Override(r.Context(), id)
		return o.Rule, err
	}
	return a.remove(w, r, by, "override", ruleOf, a.DB.RemoveOverride)
}
