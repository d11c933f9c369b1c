package adminapi

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate/headgate/identity"
)

// allTenants is in the claim of those who are of no tenant. That the claim is missing may be a mistake.
const allTenants = "*"

// JWT is an Authority that believes the claims of tokens that somebody else has signed.
type JWT struct {
	Tokens *identity.Tokens
	// Role, Tenant and Name are the claims that say so. Without Tenant all callers are of none; with it each token needs
	// the claim, "*" for no tenant.
	Role, Tenant, Name string
}

// Caller is who the claims say.
func (j JWT) Caller(_ context.Context, token string) (Caller, error) {
	if strings.Count(token, ".") != 2 {
		return Caller{}, errUnknown // it is of another kind
	}
	claim, err := j.Tokens.Claims(token)
	if err != nil {
		return Caller{}, deniedError("the token is not believed: " + err.Error())
	}
	c := Caller{Name: claim(j.Name), Role: Role(claim(j.Role))}
	if c.Name == "" {
		return Caller{}, lacks(j.Name, "the caller's name")
	}
	if !slices.Contains(roles, c.Role) {
		return Caller{}, lacks(j.Role, "self, viewer, editor or admin")
	}
	if j.Tenant != "" {
		if c.Tenant = claim(j.Tenant); c.Tenant == "" {
			return Caller{}, lacks(j.Tenant, `the caller's tenant, or "*" for all`)
		}
		if c.Tenant == allTenants {
			c.Tenant = ""
		}
	}
	return c, nil
}

func lacks(claim, what string) error {
	return deniedError("the token is not believed: its claim " + claim + " must be " + what)
}
