package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/server/rulediff"
	"github.com/headgate/headgate/ruledoc"
)

// maxRules is how many rules can be published at once.
const maxRules = 10_000

// RulesChange is an atomic change of many rules.
type RulesChange struct {
	Rules []json.RawMessage `json:"rules"`
	// Prune disables all other rules, except those that tenants have made.
	Prune bool `json:"prune"`
	// Base is the version that the change is based on.
	Base    *int64 `json:"base,omitzero"`
	Mode    string `json:"mode,omitzero"`
	Comment string `json:"comment,omitzero"`
	DryRun  bool   `json:"dryRun,omitzero"`
}

const versionExample = `{"rules": [{"id": "search", "by": ["api_key"], "limit": "100/minute"}], "prune": false, ` +
	`"base": 12, "mode": "enforce", "comment": "why", "dryRun": true}`

// readChange parses a body with many rules. If tenant is not "", they become rules of that tenant.
func readChange(body []byte, tenant string) (RulesChange, pgrules.Change, error) {
	request, err := parseLike[RulesChange](body, versionExample)
	change := pgrules.Change{Prune: request.Prune}
	switch mode := pgrules.ModeOf(request.Mode); {
	case err != nil:
		return request, change, err
	case len(request.Rules) > maxRules:
		return request, change, unprocessable("rules: %d rules: send at most %d", len(request.Rules), maxRules)
	case tenant != "" && (request.Prune || request.Mode != ""):
		return request, change, newProblem(http.StatusForbidden, "prune and mode: not allowed for tenants, since they concern the rules of all "+
			"tenants: omit them")
	case request.Mode != "" && request.Mode != mode.String():
		return request, change, unprocessable("mode %q: must be enforce, shadow or off", request.Mode)
	case request.Mode != "":
		change.Mode = &mode
	}
	starts := ruleStarts(body)
	var problems ruledoc.Errors
	for i, document := range request.Rules {
		definition, err := define(document, tenant)
		if bad, ok := errors.AsType[ruledoc.Errors](err); ok {
			problems = append(problems, shifted(bad, body[:starts[i]])...)
			continue
		}
		if err != nil {
			return request, change, err
		}
		change.Edits = append(change.Edits, edit(definition))
	}
	if len(problems) > 0 {
		return request, change, problems
	}
	return request, change, nil
}

// edit returns the edit that sets a rule, whatever its revision is.
func edit(d *pgrules.Definition) pgrules.Edit {
	return pgrules.Edit{Name: d.Rule.ID, Put: d, Revision: pgrules.AnyRevision}
}

// ruleStarts returns the offsets of the rules in a valid body.
func ruleStarts(body []byte) (starts []int) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	_, _ = decoder.Token()
	for decoder.More() {
		key, _ := decoder.Token()
		var value json.RawMessage
		if name, _ := key.(string); name != "rules" {
			if decoder.Decode(&value) != nil {
				return starts
			}
			continue
		}
		_, _ = decoder.Token()
		for starts = nil; decoder.More() && decoder.Decode(&value) == nil; {
			starts = append(starts, int(decoder.InputOffset())-len(value))
		}
		_, _ = decoder.Token()
	}
	return starts
}

// shifted returns the errors of a rule with positions relative to the beginning of the body.
func shifted(bad ruledoc.Errors, before []byte) ruledoc.Errors {
	lines := bytes.Count(before, []byte("\n"))
	columns := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	for _, e := range bad {
		if e.Line == 1 {
			e.Column += columns
		}
		e.Line += lines
	}
	return bad
}

// validation is the result of validate: the problems of rules, or the changes that publishing them would make.
type validation struct {
	Valid    bool             `json:"valid"`
	Problems []ruleProblem    `json:"problems"`
	Changes  *rulediff.Report `json:"changes,omitempty"`
}

// validate makes a dry run of one rule or of many. Invalid rules are a regular response, not an error.
func (a *api) validate(c *call) (any, error) {
	body, err := c.readBody(maxBulk)
	if err != nil {
		return nil, err
	}
	var keys struct {
		Rules json.RawMessage `json:"rules"`
	}
	var change pgrules.Change
	if json.Unmarshal(body, &keys) == nil && keys.Rules != nil {
		_, change, err = readChange(body, c.by.Tenant)
	} else {
		var definition *pgrules.Definition
		if definition, err = define(body, c.by.Tenant); err == nil {
			change.Edits = []pgrules.Edit{edit(definition)}
		}
	}
	var outcome pgrules.Outcome
	if err == nil {
		change.DryRun = true
		outcome, err = a.DB.Publish(c.Context(), c.by.who(""), change)
	}
	v := validation{Valid: err == nil, Problems: []ruleProblem{}}
	if err == nil {
		if c.by.Tenant != "" {
			outcome.Before, outcome.After = edited(outcome.Before, change.Edits), edited(outcome.After, change.Edits)
		}
		if v.Changes, err = reportOf(&outcome); err != nil {
			return nil, err
		}
		return v, nil
	}
	p := problemOf(err)
	if p.Status != http.StatusUnprocessableEntity {
		return nil, err
	}
	if v.Problems = p.Problems; v.Problems == nil {
		v.Problems = []ruleProblem{{Problem: p.Detail}}
	}
	return v, nil
}

// edited returns the rules that a change edits. A tenant may not see the others.
func edited(rules []headgate.Rule, edits []pgrules.Edit) []headgate.Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r headgate.Rule) bool {
		return !slices.ContainsFunc(edits, func(e pgrules.Edit) bool { return e.Name == r.ID })
	})
}
