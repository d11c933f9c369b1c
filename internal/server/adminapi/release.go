package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/fanout"
)

// Release is a request to release the units of concurrency limits that a holder has.
type Release struct {
	Subject headgate.Attributes `json:"subject"`
	// Holder is the ID that explain shows.
	Holder string `json:"holder"`
	Reason string `json:"reason"`
}

// Released is what was released.
type Released struct {
	Units int64 `json:"units"`
	// Node is empty if the holder's node is not known, as when it was killed.
	Node string `json:"node"`
}

// ReleaseQuery asks a node to release the units of one of its holders.
type ReleaseQuery struct {
	Subject headgate.Subject `json:"subject"`
	Counter headgate.Counter `json:"counter"`
	Holder  uint64           `json:"holder,string"`
}

// ReleaseResult is the reply of a node, or of all.
type ReleaseResult struct {
	fanout.Header
	// Found is whether the holder belongs to the node, and Units how many units its requests had in use.
	Found bool  `json:"found"`
	Units int64 `json:"units"`
}

// ReleaseOwn returns the reply of the node of a limiter.
func ReleaseOwn(l *headgate.Limiter) func(ReleaseQuery) ReleaseResult {
	return func(q ReleaseQuery) ReleaseResult {
		units, found := l.ReleaseOwn(q.Subject, q.Counter, q.Holder)
		return ReleaseResult{fanout.Header{Version: 1, Nodes: 1}, found, units}
	}
}

// MergeReleases combines the replies of nodes, of which one at most has the holder.
func MergeReleases(_ ReleaseQuery, all []ReleaseResult) ReleaseResult {
	if i := slices.IndexFunc(all, func(r ReleaseResult) bool { return r.Found }); i >= 0 {
		return all[i]
	}
	return ReleaseResult{}
}

// releaseHolder releases what a holder has of the concurrency limits of a rule. Its own node does that, so that it does not count the
// units again, or Redis if there is no such node any more.
func (a *api) releaseHolder(c *call) (any, error) {
	requested, err := read[Release](c, `{"subject": {"tenant": "acme"}, "holder": "0123456789abcdef", "reason": "why"}`)
	if err != nil {
		return nil, err
	}
	holder, err := strconv.ParseUint(requested.Holder, 16, 64)
	if err != nil {
		return nil, unprocessable("holder %q: must be 16 hexadecimal digits, as headgate explain shows them", requested.Holder)
	}
	rule, err := a.ruleOf(c, c.PathValue("ruleId"), requested.Subject)
	if err != nil {
		return nil, err
	}
	d, err := a.limiter.Peek(c.Context(), headgate.Request{Attributes: requested.Subject, Rule: rule.ID})
	if err != nil {
		return nil, notFound("%s", err)
	}
	concurrent := false
	for i := range d.Limits {
		limit := &d.Limits[i]
		if limit.Limit.Algorithm != headgate.Concurrency {
			continue
		}
		concurrent = true
		holders, err := a.limiter.Holders(c.Context(), limit)
		if err != nil {
			return nil, a.storeUnavailable(err)
		}
		if at := slices.IndexFunc(holders, func(h headgate.Holder) bool { return h.ID == holder }); at >= 0 {
			return a.releaseFrom(c, &rule, limit, &holders[at], &requested)
		}
	}
	if !concurrent {
		return nil, unprocessable("rule %q: has no concurrency limit for this subject: use reset or grant", rule.ID)
	}
	return nil, newProblem(http.StatusConflict, fmt.Sprintf("holder %s has no units of this subject: list the holders with headgate explain",
		requested.Holder))
}

// releaseFrom releases the units of a holder, after it has written the audit.
func (a *api) releaseFrom(c *call, rule *headgate.Rule, limit *headgate.LimitDecision, h *headgate.Holder, requested *Release) (any, error) {
	a.Log.InfoContext(c.Context(), "units of a holder released", "caller", c.by.Name, "rule", rule.ID, "node", h.Node, "units", h.Units)
	record := struct {
		What string `json:"what"`
		Release
	}{"release", *requested}
	if err := a.audit(c, rule, requested.Subject, record); err != nil {
		return nil, err
	}
	query := ReleaseQuery{Subject: limit.Subject, Counter: limit.Counter, Holder: h.ID}
	result := ReleaseOwn(a.limiter)(query)
	if !result.Found && a.ReleaseOwn != nil {
		var err error
		if result, _, err = a.ReleaseOwn(c.Context(), query); err != nil {
			return nil, err
		}
	}
	switch {
	case result.Found:
		return Released{result.Units, h.Node}, nil
	case h.Node != "":
		return nil, newProblem(http.StatusConflict, fmt.Sprintf("node %s did not release the units, and would count them again: restart it; "+
			"if it was killed, try again in 10 seconds", h.Node))
	}
	units, err := a.limiter.ReleaseHolder(c.Context(), limit, h.ID)
	switch {
	case errors.Is(err, headgate.ErrUnanswered):
		return nil, a.storeUnavailable(fmt.Errorf("%w: it is unknown whether the units were released: explain shows it", err))
	case err != nil:
		return nil, a.storeUnavailable(err)
	}
	return Released{Units: units}, nil
}
