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

// maxRules is how many can be published at once.
const maxRules = 10_000

// RulesChange is many rules as one change.
type RulesChange struct {
	Rules []json.RawMessage `json:"rules"`
	// Prune disables the rules that are not named, but for those that tenants have made.
	Prune bool `json:"prune"`
	// Base is the version that it was planned from.
	Base    *int64 `json:"base,omitzero"`
	Mode    string `json:"mode,omitzero"`
	Comment string `json:"comment,omitzero"`
	DryRun  bool   `json:"dryRun,omitzero"`
}

const versionExample = `{"rules": [{"id": "search", "by": ["api_key"], "limit": "100/minute"}], "prune": false, ` +
	`"base": 12, "mode": "enforce", "comment": "why", "dryRun": true}`

// readChange is what a body with many rules wants, as a tenant's if there is one.
func readChange(body []byte, tenant string) (RulesChange, pgrules.Change, error) {
	wanted, err := parseLike[RulesChange](body, versionExample)
	change := pgrules.Change{Prune: wanted.Prune}
	switch mode := pgrules.ModeOf(wanted.Mode); {
	case err != nil:
		return wanted, change, err
	case len(wanted.Rules) > maxRules:
		return wanted, change, unusable("there are %d rules: send at most %d", len(wanted.Rules), maxRules)
	case tenant != "" && (wanted.Prune || wanted.Mode != ""):
		return wanted, change, newProblem(http.StatusForbidden, "prune and mode are about the rules of all "+
			"tenants: leave them out")
	case wanted.Mode != "" && wanted.Mode != mode.String():
		return wanted, change, unusable("mode is %q: send enforce, shadow or off", wanted.Mode)
	case wanted.Mode != "":
		change.Mode = &mode
	}
	starts := ruleStarts(body)
	var problems ruledoc.Errors
	for i, document := range wanted.Rules {
		definition, err := define(document, tenant)
		if bad, ok := errors.AsType[ruledoc.Errors](err); ok {
			problems = append(problems, moved(bad, body[:starts[i]])...)
			continue
		}
		if err != nil {
			return wanted, change, err
		}
		change.Edits = append(change.Edits, edit(definition))
	}
	if len(problems) > 0 {
		return wanted, change, problems
	}
	return wanted, change, nil
}

// edit makes a rule what a definition says, whatever it was.
func edit(d *pgrules.Definition) pgrules.Edit {
	return pgrules.Edit{Name: d.Rule.ID, Put: d, Revision: pgrules.AnyRevision}
}

// ruleStarts is where the rules of a body begin, which was parsed before.
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

// moved are the problems of a rule whose places count from the beginning of the body.
func moved(bad ruledoc.Errors, before []byte) ruledoc.Errors {
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

// verdict is what is wrong with rules, and what would change if they were published.
type verdict struct {
	Valid    bool             `json:"valid"`
	Problems []ruleProblem    `json:"problems"`
	Changes  *rulediff.Report `json:"changes,omitempty"`
}

// validate is a dry run of one rule, or of many. That they are no good is an answer.
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
	v := verdict{Valid: err == nil, Problems: []ruleProblem{}}
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

// edited are the rules that a change is about: the others are not for a tenant to see.
func edited(rules []headgate.Rule, edits []pgrules.Edit) []headgate.Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r headgate.Rule) bool {
		return !slices.ContainsFunc(edits, func(e pgrules.Edit) bool { return e.Name == r.ID })
	})
}
