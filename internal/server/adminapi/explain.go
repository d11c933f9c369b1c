package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/explain"
)

func (a *api) explain(c *call) (any, error) {
	q, err := a.readQuestion(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.Context(), storeTimeout)
	defer cancel()
	explanation, err := a.limiter.Explain(ctx, headgate.Request{Attributes: q.Attributes, Cost: q.Cost})
	if err != nil && !decided(&explanation) {
		return nil, a.undecided(explanation.Decision.Limits, nil, err)
	}
	var notes []string
	if unused := a.unusedAttributes(q.Attributes); unused != "" {
		notes = append(notes, unused)
	}
	place := explain.Place{RulesFrom: a.RulesFrom, Redis: a.Redis, Key: a.Key, Regions: map[int]*explain.Regions{}, Home: a.homeOf}
	a.addRegions(c.Context(), explanation.Decision.Limits, func(i int, r *explain.Regions) { place.Regions[i] = r })
	return explain.New(&explanation, q, place, notes...), nil
}

// decided reports whether all limits were decided, by Redis, a local fallback share or on_store_failure. A limit with a local fallback
// share that failed all the same was not decided.
func decided(e *headgate.Explanation) bool {
	local := map[string]bool{}
	for i := range e.Rules {
		local[e.Rules[i].Rule.ID] = e.Rules[i].Rule.OnStoreFailure == headgate.FailLocal
	}
	return !slices.ContainsFunc(e.Decision.Limits, func(l headgate.LimitDecision) bool {
		return l.DecidedBy() == headgate.PathFailed && local[l.Rule]
	})
}

func (a *api) storeUnavailable(err error) *problem {
	store := cmp.Or(a.Redis, "the store")
	return newProblem(http.StatusServiceUnavailable, fmt.Sprintf("%s: %s", store, err))
}

// unusedAttributes returns a note on attributes that no rule and no exemption uses. A limiter does not report which attributes its
// exemptions use, so that with any exemption all attributes of exemptions count as used.
func (a *api) unusedAttributes(attributes headgate.Attributes) string {
	var exempt []string
	if _, exemptions := a.limiter.Exceptions().Len(); exemptions > 0 {
		exempt = []string{"api_key", "user", "service_account", "ip"}
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(attributes)), func(name string) bool {
		return name == headgate.OtherPath || name == headgate.OtherMethod
	})
	return explain.UnusedAttributes(names, a.limiter.Rules(), exempt...)
}

// normalize rewrites attributes as the data plane does. An operator may give an API key by its hash.
func (a *api) normalize(attributes headgate.Attributes) error {
	if a.Normalize == nil {
		return nil
	}
	if key := attributes["api_key"]; headgate.IsKeyHash(key) {
		delete(attributes, "api_key")
		attributes["api_key_hash"] = key
	}
	return a.Normalize(attributes)
}

func (a *api) readQuestion(c *call) (q explain.Question, err error) {
	body, err := c.readBody(maxBody)
	if err != nil {
		return q, err
	}
	if q, err = parse[explain.Question](body); err != nil {
		return q, badRequest(`invalid body: %s: send {"attributes": `+
			`{"method": "POST", "path": "/login", "ip": "192.0.2.1"}, "cost": 1, "all": false}`, err)
	}
	if err := a.normalize(q.Attributes); err != nil {
		return q, badRequest("%s", err)
	}
	if err := check.Validate(headgate.Request{Attributes: q.Attributes, Cost: q.Cost}); err != nil {
		return q, badRequest("%s", err)
	}
	return q, nil
}
