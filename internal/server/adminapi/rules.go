package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// Rule is a rule: its flat form, the whole of it as a document, and what the tables know besides.
type Rule = pgrules.Rule

func answerRule(w http.ResponseWriter, status int, r *Rule, version int64) error {
	r.Version = version
	w.Header().Set("Etag", tagOf(r))
	return answer(w, status, r)
}

func tagOf(r *Rule) string { return strconv.Quote(strconv.FormatInt(r.Revision, 10)) }

func (a *api) listRules(w http.ResponseWriter, r *http.Request, by Caller) error {
	page, q, err := readPage(r, "tenant", "scope", "enabled")
	if err != nil {
		return err
	}
	var filter pgrules.Filter
	for name, into := range map[string]**string{"tenant": &filter.Tenant, "scope": &filter.Scope} {
		if value := q.Get(name); value != "" {
			*into = &value
		}
	}
	if text := q.Get("enabled"); text != "" {
		enabled, err := strconv.ParseBool(text)
		if err != nil {
			return badRequest("enabled is %q: send true or false, or leave it out for all rules", text)
		}
		filter.Enabled = &enabled
	}
	if by.Tenant != "" {
		filter.Owner = &by.Tenant
	}
	rules, err := a.DB.Rules(r.Context(), filter, page)
	if err != nil {
		return err
	}
	return answerPage(w, page, "rules", rules, func(r *Rule) int64 { return r.ID })
}

func (a *api) createRule(w http.ResponseWriter, r *http.Request, by Caller) error {
	definition, err := readDefinition(w, r, by.Tenant)
	if err != nil {
		return err
	}
	name := definition.Rule.ID
	outcome, err := a.publish(r, by, pgrules.Edit{Name: name, Put: definition})
	if errors.Is(err, pgrules.ErrConflict) {
		return a.taken(r, by, name, err)
	}
	if err != nil {
		return err
	}
	made, err := a.DB.Rule(r.Context(), name)
	if err != nil {
		return err
	}
	w.Header().Set("Location", rulesPath+"/"+made.UUID)
	return answerRule(w, http.StatusCreated, &made, outcome.Version)
}

// taken says what to do where there is a rule of the name. Tenants learn nothing of it.
func (a *api) taken(r *http.Request, by Caller, name string, conflict error) error {
	there, err := a.DB.Rule(r.Context(), name)
	switch {
	case err != nil:
		return conflict // it was about something else
	case !by.owns(there.Owner):
		return newProblem(http.StatusConflict, fmt.Sprintf("the name %q is taken: choose another", name))
	}
	state := ""
	if !there.Enabled {
		state = ", which is disabled"
	}
	return newProblem(http.StatusConflict, fmt.Sprintf("there is a rule %q%s: PUT %s/%s with If-Match: %s replaces it",
		name, state, rulesPath, there.UUID, tagOf(&there)))
}

func (a *api) readRule(w http.ResponseWriter, r *http.Request, by Caller) error {
	found, err := a.rule(r, by)
	if err != nil {
		return err
	}
	return answerRule(w, http.StatusOK, &found, 0)
}

func (a *api) replaceRule(w http.ResponseWriter, r *http.Request, by Caller) error {
	found, err := a.rule(r, by)
	if err != nil {
		return err
	}
	definition, err := readDefinition(w, r, found.Owner)
	if err != nil {
		return err
	}
	if definition.Rule.ID != found.Name {
		return unusable("a rule keeps its name, by which its counters go: this is rule %q, and "+
			"the body says %q; to rename it create another and disable this one", found.Name, definition.Rule.ID)
	}
	outcome, err := a.change(r, by, &found, definition)
	if err != nil {
		return err
	}
	if found, err = a.DB.Rule(r.Context(), found.UUID); err != nil {
		return err
	}
	return answerRule(w, http.StatusOK, &found, outcome.Version)
}

func (a *api) disableRule(w http.ResponseWriter, r *http.Request, by Caller) error {
	found, err := a.rule(r, by)
	if err != nil {
		return err
	}
	_, err = a.change(r, by, &found, nil)
	return answerRemoved(w, err)
}

// rule is the one in the path, if the caller may see it.
func (a *api) rule(r *http.Request, by Caller) (Rule, error) {
	return a.ruleNamed(r, by, r.PathValue("ruleId"))
}

func (a *api) ruleNamed(r *http.Request, by Caller, name string) (Rule, error) {
	found, err := a.DB.Rule(r.Context(), name)
	if err == nil && !by.owns(found.Owner) {
		err = fmt.Errorf("rule %q: %w", name, pgrules.ErrNotFound)
	}
	return found, err
}

// change replaces or disables a rule. With If-Match it must still be the one that the caller has read; without, the last writer wins,
// and the audit has what was there before.
func (a *api) change(
	r *http.Request, by Caller, found *Rule, definition *pgrules.Definition,
) (pgrules.Outcome, error) {
	edit := pgrules.Edit{Name: found.Name, Put: definition, Revision: pgrules.AnyRevision}
	stale := newProblem(http.StatusPreconditionFailed, fmt.Sprintf("rule %q has been changed since you have read it: read it "+
		"again, and send its ETag in If-Match", found.Name))
	if match := strings.Join(r.Header.Values("If-Match"), ","); match != "" && match != "*" {
		edit.Revision = found.Revision
		fits := false
		for tag := range strings.SplitSeq(match, ",") {
			fits = fits || strings.TrimSpace(tag) == tagOf(found)
		}
		if !fits {
			return pgrules.Outcome{}, stale
		}
	}
	outcome, err := a.publish(r, by, edit)
	if errors.Is(err, pgrules.ErrConflict) && edit.Revision != pgrules.AnyRevision {
		return outcome, stale
	}
	return outcome, err
}

func (a *api) publish(r *http.Request, by Caller, edits ...pgrules.Edit) (pgrules.Outcome, error) {
	return a.DB.Publish(r.Context(), by.who(""), pgrules.Change{Edits: edits})
}

// readDefinition is the rule in the body, as a tenant's if there is one.
func readDefinition(w http.ResponseWriter, r *http.Request, tenant string) (*pgrules.Definition, error) {
	body, err := readBody(w, r, maxBody)
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
