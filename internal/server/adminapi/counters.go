package adminapi

import (
	"cmp"
	"errors"
	"maps"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/ruledoc"
)

// Credit is a request to give units back to a subject. A reset has no units, and gives back all.
type Credit struct {
	Subject headgate.Attributes `json:"subject"`
	Units   int64               `json:"units"`
	Reason  string              `json:"reason"`
}

// resetCounter gives back all used units of a subject.
func (a *api) resetCounter(c *call) (any, error) {
	credit, err := read[Credit](c, `{"subject": {"user": "ann"}, "reason": "why"}`)
	if err != nil {
		return nil, err
	}
	if credit.Units != 0 {
		return nil, unprocessable("units: not allowed for a reset, which gives back all units: omit it, or POST to grant")
	}
	return a.giveBack(c, "reset", credit)
}

// grantUnits gives back some units.
func (a *api) grantUnits(c *call) (any, error) {
	credit, err := read[Credit](c, `{"subject": {"user": "ann"}, "units": 100, "reason": "why"}`)
	if err != nil {
		return nil, err
	}
	if credit.Units < 1 || credit.Units > headgate.MaxCost {
		return nil, unprocessable("units %d: must be 1 to %d", credit.Units, headgate.MaxCost)
	}
	return a.giveBack(c, "grant", credit)
}

// setCost makes a request cost this many units of a rule.
func setCost(rule *headgate.Rule, request *headgate.Request, units int64) error {
	each := max(rule.Cost.Default, 1)
	if from := rule.Cost.From; from != "" {
		lowest, highest := max(rule.Cost.Min, 1), cmp.Or(rule.Cost.Max, headgate.MaxCost)
		if units < lowest || units > highest {
			return unprocessable("units %d: must be %d to %d, as the cost of requests in rule %q", units, lowest, highest, rule.ID)
		}
		request.Attributes = maps.Clone(request.Attributes)
		request.Attributes[from] = strconv.FormatInt(units, 10)
		return nil
	}
	if units%each != 0 {
		return unprocessable("units %d: must be a multiple of %d, the cost of a request in rule %q", units, each, rule.ID)
	}
	request.Cost = units / each
	return nil
}

// giveBack refunds units and returns the usage after that. It writes the audit first. If that fails, nothing is refunded.
func (a *api) giveBack(c *call, action string, credit Credit) (any, error) {
	id := c.PathValue("ruleId")
	if err := a.mayCredit(c, id); err != nil {
		return nil, err
	}
	rule, err := a.ruleOf(c, id, credit.Subject)
	if err != nil {
		return nil, err
	}
	request := headgate.Request{Attributes: credit.Subject, Rule: rule.ID}
	if credit.Units == 0 {
		request.Cost = headgate.MaxCost
	} else if err := setCost(&rule, &request, credit.Units); err != nil {
		return nil, err
	}
	a.Log.InfoContext(c.Context(), "units given back", "caller", c.by.Name, "action", action, "rule", rule.ID,
		"units", credit.Units)
	record := struct {
		What string `json:"what"`
		Credit
	}{action, credit}
	if err := a.audit(c, &rule, credit.Subject, record); err != nil {
		return nil, err
	}
	d, err := a.limiter.Refund(c.Context(), request)
	if err != nil {
		p := a.undecided(d.Limits, credit.Subject, err)
		switch {
		case errors.Is(err, headgate.ErrUnanswered):
			p.Detail += ": it is unknown whether the units were given back: check the usage before you retry"
		case errors.Is(err, headgate.ErrUnavailable):
			p.Detail += "; repeat the " + action + " when it responds"
		}
		return nil, p
	}
	problems := a.creditRegions(c.Context(), d.Limits, credit.Units)
	u, err := a.peek(c, id, &rule, credit.Subject)
	u.RegionProblems = problems
	return u, err
}

// ruleOf returns the rule in force whose counter of a subject is to be changed.
func (a *api) ruleOf(c *call, id string, subject headgate.Attributes) (headgate.Rule, error) {
	rule, err := a.ruleInForce(c, id)
	if err != nil {
		return rule, err
	}
	if err := ruledoc.CheckSubject(&rule, subject); err != nil && len(rule.By) > 0 {
		return rule, unprocessable("%s", err)
	}
	return rule, nil
}

// audit writes what is about to be done to a subject's counter, if there is a database.
func (a *api) audit(c *call, rule *headgate.Rule, subject headgate.Attributes, record any) error {
	if a.DB == nil {
		return nil
	}
	return a.DB.Record(c.Context(), c.by.who(""), rule.ID, subject["tenant"], record)
}

// mayCredit rejects credits of tenants, except for rules that they have made.
func (a *api) mayCredit(c *call, id string) error {
	if c.by.Tenant == "" {
		return nil
	}
	if a.DB == nil {
		return notFound("rule %q: not found for tenant %s", id, c.by.Tenant)
	}
	_, err := a.rule(c, id)
	return err
}
