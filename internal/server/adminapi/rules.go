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

// Rule is a rule: its flat form, the whole of it as a document, and what the tables know besides.
type Rule = pgrules.Rule

func tagOf(r *Rule) string { return strconv.Quote(strconv.FormatInt(r.Revision, 10)) }

func (a *api) listRules(c *call) (any, error) {
	id := func(r *Rule) int64 { return r.ID }
	return list(c, "rules", id, []string{"tenant", "scope", "enabled"}, func(q url.Values, page pgrules.Page) ([]Rule, error) {
		var filter pgrules.Filter
		for name, into := range map[string]**string{"tenant": &filter.Tenant, "scope": &filter.Scope} {
			if value := q.Get(name); value != "" {
				*into = &value
			}
		}
		if text := q.Get("enabled"); text != "" {
			enabled, err := strconv.ParseBool(text)
			if err != nil {
				return nil, badRequest("enabled is %q: send true or false, or leave it out for all rules", text)
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
		err = a.taken(c, name, err)
	}
	if err != nil {
		return nil, err
	}
	made, err := a.showRule(c, name, outcome.Version)
	return created{RulesPath + "/" + made.UUID, made}, err
}

// taken says what to do where there is a rule of the name. Tenants learn nothing of it.
func (a *api) taken(c *call, name string, conflict error) error {
	there, err := a.DB.Rule(c.Context(), name)
	switch {
	case err != nil:
		return conflict // it was about something else
	case !c.by.owns(there.Owner):
		return newProblem(http.StatusConflict, fmt.Sprintf("the name %q is taken: choose another", name))
	}
	state := ""
	if !there.Enabled {
		state = ", which is disabled"
	}
	return newProblem(http.StatusConflict, fmt.Sprintf("there is a rule %q%s: PUT %s/%s with If-Match: %s replaces it",
		name, state, RulesPath, there.UUID, tagOf(&there)))
}

func (a *api) readRule(c *call) (any, error) { return a.showRule(c, c.PathValue("ruleId"), 0) }

// showRule is a rule with its tag, and the version that a change has made of the rules.
func (a *api) showRule(c *call, name string, version int64) (Rule, error) {
	found, err := a.rule(c, name)
	if err == nil {
		found.Version = version
		c.w.Header().Set("Etag", tagOf(&found))
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
		return nil, unusable("a rule keeps its name, by which its counters go: this is rule %q, and "+
			"the body says %q; to rename it create another and disable this one", found.Name, definition.Rule.ID)
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

// rule is the one of a name or UUID, if the caller may see it.
func (a *api) rule(c *call, name string) (Rule, error) {
	found, err := a.DB.Rule(c.Context(), name)
	if err == nil && !c.by.owns(found.Owner) {
		err = fmt.Errorf("rule %q: %w", name, pgrules.ErrNotFound)
	}
	return found, err
}

// change replaces or disables a rule. With If-Match it must still be the one that the caller has read; without, the last writer wins,
// and the audit has what was there before.
func (a *api) change(c *call, found *Rule, definition *pgrules.Definition) (pgrules.Outcome, error) {
	edit := pgrules.Edit{Name: found.Name, Put: definition, Revision: pgrules.AnyRevision}
	stale := newProblem(http.StatusPreconditionFailed, fmt.Sprintf("rule %q has been changed since you have read it: read it "+
		"again, and send its ETag in If-Match", found.Name))
	if match := strings.Join(c.Header.Values("If-Match"), ","); match != "" && match != "*" {
		edit.Revision = found.Revision
		fits := false
		for tag := range strings.SplitSeq(match, ",") {
			fits = fits || strings.TrimSpace(tag) == tagOf(found)
		}
		if !fits {
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

// readDefinition is the rule in the body, as a tenant's if there is one.
func readDefinition(c *call, tenant string) (*pgrules.Definition, error) {
	body, err := c.readBody(maxBody)
	if err != nil {
		return nil, err
	}
	return define(body, tenant)
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func define(body []byte, tenant string) (*pgrules.Definition, error) {
	definition, err := pgrules.Define(body)
	switch {
	case err != nil:
		return nil, err
	case uuid.MatchString(definition.Rule.ID):
		return nil, unusable("rule %q has a UUID for a name, by which another may be meant: "+
			"choose a name", definition.Rule.ID)
	case tenant != "":
		return ofTenant(definition, tenant)
	}
	return definition, nil
}
