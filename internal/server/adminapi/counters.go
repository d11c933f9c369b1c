package adminapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/ruledoc"
)

// Credit is what a subject is to be given back. A reset has no units, and gives back all.
type Credit struct {
	Subject headgate.Attributes `json:"subject"`
	Units   int64               `json:"units"`
	Reason  string              `json:"reason"`
}

// resetCounter gives back all that a subject has used.
func (a *api) resetCounter(w http.ResponseWriter, r *http.Request, by Caller) error {
	wanted, err := read[Credit](w, r, maxBody, `{"subject": {"user": "ann"}, "reason": "why"}`)
	if err != nil {
		return err
	}
	if wanted.Units != 0 {
		return unusable("a reset gives back everything: leave units out, or POST to grant")
	}
	return a.giveBack(w, r, by, "reset", wanted, func(_ *headgate.Rule, request *headgate.Request) error {
		request.Cost = headgate.MaxCost
		return nil
	})
}

// grantUnits gives back some units.
func (a *api) grantUnits(w http.ResponseWriter, r *http.Request, by Caller) error {
	wanted, err := read[Credit](w, r, maxBody, `{"subject": {"user": "ann"}, "units": 100, "reason": "why"}`)
	if err != nil {
		return err
	}
	if wanted.Units < 1 || wanted.Units > headgate.MaxCost {
		return unusable("units is %d: send 1 to %d", wanted.Units, headgate.MaxCost)
	}
	return a.giveBack(w, r, by, "grant", wanted, func(rule *headgate.Rule, request *headgate.Request) error {
		return costs(rule, request, wanted.Units)
	})
}

// costs makes a request one that costs so many units.
func costs(rule *headgate.Rule, request *headgate.Request, units int64) error {
	each := max(rule.Cost.Default, 1)
	if from := rule.Cost.From; from != "" {
		least, most := max(rule.Cost.Min, 1), cmp.Or(rule.Cost.Max, headgate.MaxCost)
		if units < least || units > most {
			return unusable("requests cost %d to %d units of rule %q: grant as many", least, most, rule.ID)
		}
		request.Attributes = maps.Clone(request.Attributes)
		request.Attributes[from] = strconv.FormatInt(units, 10)
		return nil
	}
	if units%each != 0 {
		return unusable("a request costs %d units of rule %q: grant a multiple of that", each, rule.ID)
	}
	request.Cost = units / each
	return nil
}

// giveBack makes a credit of what a request would cost, and answers with what there is then. Before that it is written
// down who did it: what cannot be is not done.
func (a *api) giveBack(w http.ResponseWriter, r *http.Request, by Caller, what string, wanted Credit,
	price func(*headgate.Rule, *headgate.Request) error,
) error {
	id := r.PathValue("ruleId")
	if err := a.mayCredit(r, by, id); err != nil {
		return err
	}
	rule, err := a.ruleInForce(r, id)
	if err != nil {
		return err
	}
	request := headgate.Request{Attributes: wanted.Subject, Rule: rule.ID}
	if err := ruledoc.CheckSubject(&rule, wanted.Subject); err != nil && len(rule.By) > 0 {
		return unusable("%s", err)
	}
	if err := price(&rule, &request); err != nil {
		return err
	}
	a.Log.InfoContext(r.Context(), "units are given back", "caller", by.Name, "what", what, "rule", rule.ID,
		"units", wanted.Units)
	if a.DB != nil {
		record := struct {
			What string `json:"what"`
			Credit
		}{what, wanted}
		tenant := wanted.Subject["tenant"]
		if err := a.DB.Record(r.Context(), by.who(""), rule.ID, tenant, record); err != nil {
			return err
		}
	}
	if _, err := a.limiter.Refund(r.Context(), request); errors.Is(err, headgate.ErrUnanswered) {
		return a.storeAway(fmt.Errorf("%w: whether the units are back is not known: look before you do it again", err))
	} else if err != nil {
		return a.storeAway(err)
	}
	left, err := a.peek(r, id, &rule, wanted.Subject)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, left)
}

// mayCredit keeps tenants from giving themselves more than we give them.
func (a *api) mayCredit(r *http.Request, by Caller, id string) error {
	if by.Tenant == "" {
		return nil
	}
	if a.DB == nil {
		return notFound("there is no rule %q of tenant %s", id, by.Tenant)
	}
	_, err := a.ruleNamed(r, by, id)
	return err
}
