package adminapi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// ofTenant makes a rule one of a tenant: a limit below those that it has from us, for its own requests and with counters
// of its own.
func ofTenant(definition *pgrules.Definition, tenant string) (*pgrules.Definition, error) {
	rule := definition.Rule
	deny := func(format string, args ...any) (*pgrules.Definition, error) {
		return nil, unusable("%s", fmt.Sprintf("rule %q: ", rule.ID)+fmt.Sprintf(format, args...))
	}
	only := headgate.OneOf(tenant)
	if says, ok := rule.Match.Attributes["tenant"]; ok && !reflect.DeepEqual(says, only) {
		return deny("it is for other requests than those of tenant %s: leave the tenant out, and it is for yours", tenant)
	}
	switch {
	case rule.Priority != 0:
		return deny("a priority would put it in the place of rules that are not yours: leave it out")
	case rule.Critical:
		return deny("critical is not for tenants: leave it out")
	case len(rule.By) == 0:
		return deny("by: [] is one counter for everybody: write by: [tenant] for one counter of yours")
	}
	attributes := map[string]headgate.Pattern{}
	maps.Copy(attributes, rule.Match.Attributes)
	attributes["tenant"] = only
	rule.Match.Attributes = attributes
	if !slices.Contains(rule.By, "tenant") {
		rule.By = append([]string{"tenant"}, rule.By...)
	}
	own, err := pgrules.DefinitionOf(rule)
	if err != nil {
		return nil, err
	}
	own.Enabled, own.Owner = definition.Enabled, tenant
	return own, nil
}
