package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// Rule is a stored rule: its flat form, its complete document, and the other columns of the table.
type Rule = pgrules.Rule

func etagOf(r *Rule) string { return strconv.Quote(strconv.FormatInt(r.Revision, 10)) }

func (a *api) listRules(c *call) (any, error) {
	id := func(r *Rule) int64 { return r.ID }
	return list(c, "rules", id, []string{"tenant", "scope", "enabled"}, func(q url.Values, page pgrules.Page) ([]Rule, error) {
		var filter pgrules.Filter
		for name, field := range map[string]**string{"tenant": &filter.Tenant, "scope": &filter.Scope} {
			if value := q.Get(name); value != "" {
				*field = &value
			}
		}
		if text := q.Get("enabled"); text != "" {
			enabled, err := strconv.ParseBool(text)
			if err != nil {
				return nil, badRequest("enabled %q: send true or false, or omit it to list all rules", text)
			}
			filter.Enabled = &enabled
		}
		if c.by.Tenant != "" {
			filter.Owner = &c.by.Tenant
		}
		return a.DB.Rules(c.Context(), filter, page)
	})
}

func (a *api) createRule(c *call) (any, error) {
	definition, err := readDefinition(c, c.by.Tenant)
	if err != nil {
		return nil, err
	}
	name := definition.Rule.ID
	outcome, err := a.publish(c, pgrules.Edit{Name: name, Put: definition})
	if errors.Is(err, pgrules.ErrConflict) {
		err = a.nameConflict(c, name, err)
	}
	if err != nil {
		return nil, err
	}
	rule, err := a.showRule(c, name, outcome.Version)
	return created{RulesPath + "/" + rule.UUID, rule}, err
}

// nameConflict returns the problem of a rule whose name is in use, with the remedy. Tenants learn nothing about rules of others.
func (a *api) nameConflict(c *call, name string, conflict error) error {
	existing, err := a.DB.Rule(c.Context(), name)
	switch {
	case err != nil:
		return conflict // a conflict of another kind
	case !c.by.owns(existing.Owner):
		return newProblem(http.StatusConflict, fmt.Sprintf("rule %q: name is taken: choose another", name))
	}
	state := ""
	if !existing.Enabled {
		state = " and is disabled"
	}
	return newProblem(http.StatusConflict, fmt.Sprintf("rule %q: exists%s: replace it with PUT %s/%s and If-Match: %s",
		name, state, RulesPath, existing.UUID, etagOf(&existing)))
}

func (a *api) readRule(c *call) (any, error) { return a.showRule(c, c.PathValue("ruleId"), 0) }

// showRule returns a rule with the version that a change has made, or 0, and sets the ETag of the response.
func (a *api) showRule(c *call, name string, version int64) (Rule, error) {
	found, err := a.rule(c, name)
	if err == nil {
		found.Version = version
		c.w.Header().Set("Etag", etagOf(&found))
	}
	return found, err
}

func (a *api) replaceRule(c *call) (any, error) {
	found, err := a.rule(c, c.PathValue("ruleId"))
	if err != nil {
		return nil, err
	}
	definition, err := readDefinition(c, found.Owner)
	if err != nil {
		return nil, err
	}
	if definition.Rule.ID != found.Name {
		return nil, unprocessable("rule %q: cannot be renamed to %q, since its name identifies its counters: create a new rule and disable "+
			"this one", found.Name, definition.Rule.ID)
	}
	outcome, err := a.change(c, &found, definition)
	if err != nil {
		return nil, err
	}
	return a.showRule(c, found.UUID, outcome.Version)
}

func (a *api) disableRule(c *call) (any, error) {
	found, err := a.rule(c, c.PathValue("ruleId"))
	if err == nil {
		_, err = a.change(c, &found, nil)
	}
	return nil, err
}

// rule returns the rule with a name or UUID, if the caller may read it.
func (a *api) rule(c *call, name string) (Rule, error) {
	found, err := a.DB.Rule(c.Context(), name)
	if err == nil && !c.by.owns(found.Owner) {
		err = fmt.Errorf("rule %q: %w", name, pgrules.ErrNotFound)
	}
	return found, err
}

// change replaces or disables a rule. With If-Match the rule must be unchanged since the caller has read it. Without If-Match the last
// writer wins, and the audit has the replaced rule.
func (a *api) change(c *call, found *Rule, definition *pgrules.Definition) (pgrules.Outcome, error) {
	edit := pgrules.Edit{Name: found.Name, Put: definition, Revision: pgrules.AnyRevision}
	stale := newProblem(http.StatusPreconditionFailed, fmt.Sprintf("rule %q: changed since it was read: read it "+
		"again and send its ETag in If-Match", found.Name))
	if match := strings.Join(c.Header.Values("If-Match"), ","); match != "" && match != "*" {
		edit.Revision = found.Revision
		matched := false
		for tag := range strings.SplitSeq(match, ",") {
			matched = matched || strings.TrimSpace(tag) == etagOf(found)
		}
		if !matched {
			return pgrules.Outcome{}, stale
		}
	}
	outcome, err := a.publish(c, edit)
	if errors.Is(err, pgrules.ErrConflict) && edit.Revision != pgrules.AnyRevision {
		return outcome, stale
	}
	return outcome, err
}

func (a *api) publish(c *call, edit pgrules.Edit) (pgrules.Outcome, error) {
	return a.DB.Publish(c.Context(), c.by.who(""), pgrules.Change{Edits: []pgrules.Edit{edit}})
}

// readDefinition returns the rule in the body. If tenant is not "", it becomes a rule of that tenant.
func readDefinition(c *call, tenant string) (*pgrules.Definition, error) {
	body, err := c.readBody(maxBody)
	if err != nil {
		return nil, err
	}
	return define(body, tenant)
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// define parses a rule. If tenant is not "", it becomes a rule of that tenant.
func define(body []byte, tenant string) (*pgrules.Definition, error) {
	definition, err := pgrules.Define(body)
	switch {
	case err != nil:
		return nil, err
	case uuid.MatchString(definition.Rule.ID):
		return nil, unprocessable("rule %q: a UUID as name is ambiguous: choose another name", definition.Rule.ID)
	case tenant != "":
		return forTenant(definition, tenant)
	}
	return definition, nil
}
