package adminapi

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate/headgate/identity"
)

// allTenants is the tenant claim of callers that are bound to no tenant. It must be explicit, since a missing claim may be a mistake.
const allTenants = "*"

// JWT is an Authority that trusts the claims of tokens signed by an external issuer.
type JWT struct {
	Tokens *identity.Tokens
	// Role, Tenant and Name are the names of the claims with the caller's role, tenant and name. If Tenant is "", callers are
	// bound to no tenant. Otherwise each token needs the claim, "*" for no tenant.
	Role, Tenant, Name string
}

// Caller returns the caller from the claims of a token.
func (j JWT) Caller(_ context.Context, token string) (Caller, error) {
	if strings.Count(token, ".") != 2 {
		return Caller{}, errUnknownToken // not a JWT
	}
	claim, err := j.Tokens.Claims(token)
	if err != nil {
		return Caller{}, tokenError("invalid token: " + err.Error())
	}
	c := Caller{Name: claim(j.Name), Role: Role(claim(j.Role))}
	if c.Name == "" {
		return Caller{}, invalidClaim(j.Name, "the caller's name")
	}
	if !slices.Contains(roles, c.Role) {
		return Caller{}, invalidClaim(j.Role, "self, viewer, editor or admin")
	}
	if j.Tenant != "" {
		if c.Tenant = claim(j.Tenant); c.Tenant == "" {
			return Caller{}, invalidClaim(j.Tenant, `the caller's tenant, or "*" for all`)
		}
		if c.Tenant == allTenants {
			c.Tenant = ""
		}
	}
	return c, nil
}

func invalidClaim(claim, want string) error {
	return tokenError("invalid token: claim " + claim + ": must be " + want)
}
