package adminapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
func (a *api) resetCounter(c *call) (any, error) {
	wanted, err := read[Credit](c, `{"subject": {"user": "ann"}, "reason": "why"}`)
	if err != nil {
		return nil, err
	}
	if wanted.Units != 0 {
		return nil, unusable("a reset gives back everything: leave units out, or POST to grant")
	}
	return a.giveBack(c, "reset", wanted)
}

// grantUnits gives back some units.
func (a *api) grantUnits(c *call) (any, error) {
	wanted, err := read[Credit](c, `{"subject": {"user": "ann"}, "units": 100, "reason": "why"}`)
	if err != nil {
		return nil, err
	}
	if wanted.Units < 1 || wanted.Units > headgate.MaxCost {
		return nil, unusable("units is %d: send 1 to %d", wanted.Units, headgate.MaxCost)
	}
	return a.giveBack(c, "grant", wanted)
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
func (a *api) giveBack(c *call, what string, wanted Credit) (any, error) {
	id := c.PathValue("ruleId")
	if err := a.mayCredit(c, id); err != nil {
		return nil, err
	}
	rule, err := a.ruleInForce(c, id)
	if err != nil {
		return nil, err
	}
	request := headgate.Request{Attributes: wanted.Subject, Rule: rule.ID}
	if err := ruledoc.CheckSubject(&rule, wanted.Subject); err != nil && len(rule.By) > 0 {
		return nil, unusable("%s", err)
	}
	if wanted.Units == 0 {
		request.Cost = headgate.MaxCost
	} else if err := costs(&rule, &request, wanted.Units); err != nil {
		return nil, err
	}
	a.Log.InfoContext(c.Context(), "units are given back", "caller", c.by.Name, "what", what, "rule", rule.ID,
		"units", wanted.Units)
	if a.DB != nil {
		record := struct {
			What string `json:"what"`
			Credit
		}{what, wanted}
		tenant := wanted.Subject["tenant"]
		if err := a.DB.Record(c.Context(), c.by.who(""), rule.ID, tenant, record); err != nil {
			return nil, err
		}
	}
	if _, err := a.limiter.Refund(c.Context(), request); errors.Is(err, headgate.ErrUnanswered) {
		return nil, a.storeAway(fmt.Errorf("%w: whether the units are back is not known: look before you do it again", err))
	} else if err != nil {
		return nil, a.storeAway(err)
	}
	return a.peek(c, id, &rule, wanted.Subject)
}

// mayCredit keeps tenants from giving themselves more than we give them.
func (a *api) mayCredit(c *call, id string) error {
	if c.by.Tenant == "" {
		return nil
	}
	if a.DB == nil {
		return notFound("there is no rule %q of tenant %s", id, c.by.Tenant)
	}
	_, err := a.rule(c, id)
	return err
}
