package adminapi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// forTenant makes a rule one of a tenant: it matches only requests of the tenant, has counters of its own or those of another rule of the
// tenant (see pgrules.DB.Publish), and applies in addition to the rules of operators.
func forTenant(definition *pgrules.Definition, tenant string) (*pgrules.Definition, error) {
	rule := definition.Rule
	reject := func(format string, args ...any) (*pgrules.Definition, error) {
		return nil, unprocessable("%s", fmt.Sprintf("rule %q: ", rule.ID)+fmt.Sprintf(format, args...))
	}
	only := headgate.OneOf(tenant)
	if pattern, ok := rule.Match.Attributes["tenant"]; ok && !reflect.DeepEqual(pattern, only) {
		return reject("match.tenant: must be %s: omit it to match your tenant", tenant)
	}
	switch {
	case rule.Priority != 0:
		return reject("priority: not allowed for tenants, since it could replace rules of operators: omit it")
	case rule.Critical:
		return reject("critical: not allowed for tenants: omit it")
	case len(rule.By) == 0 && rule.Counter == "":
		return reject("by: [] would be one counter for all tenants: write by: [tenant]")
	}
	attributes := map[string]headgate.Pattern{}
	maps.Copy(attributes, rule.Match.Attributes)
	attributes["tenant"] = only
	rule.Match.Attributes = attributes
	if rule.Counter == "" && !slices.Contains(rule.By, "tenant") {
		rule.By = append([]string{"tenant"}, rule.By...)
	}
	own, err := pgrules.DefinitionOf(rule)
	if err != nil {
		return nil, err
	}
	own.Enabled, own.Owner = definition.Enabled, tenant
	return own, nil
}
