package adminapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// Role is what a caller may do. An empty or unknown role may do nothing.
type Role string

// Each role includes the roles before it. Self reads its own usage, Viewer reads everything, Editor changes rules, overrides,
// exemptions and counters, and Admin manages tokens. CallerRole is different: services and gateways with it use the data plane, and
// nothing of this API.
const (
	CallerRole Role = "caller"
	Self       Role = "self"
	Viewer     Role = "viewer"
	Editor     Role = "editor"
	Admin      Role = "admin"
)

var roles = []Role{CallerRole, Self, Viewer, Editor, Admin}

// atLeast reports whether a role includes another. It returns false if the other role is unknown, so that a forgotten role admits no
// caller.
func (r Role) atLeast(other Role) bool {
	needed := slices.Index(roles, other)
	return needed >= 0 && slices.Index(roles, r) >= needed
}

// Caller identifies the client of a call.
type Caller struct {
	// Name is used in logs and the audit.
	Name string
	Role Role
	// Tenant, if not "", is the only tenant whose data the caller can read and change.
	Tenant string
	// Subject is the subject whose usage a caller with the role Self can read: user=NAME, or api_key= and the hash of a key. It is ""
	// for other roles, and for the user with the caller's name.
	Subject string
}

// subject returns the attributes that the caller's own requests are counted by, as far as its token determines them.
func (c Caller) subject() headgate.Attributes {
	attributes := headgate.Attributes{}
	if c.Tenant != "" {
		attributes["tenant"] = c.Tenant
	}
	if name, value, ok := strings.Cut(c.Subject, "="); ok {
		attributes[name] = value
	} else if c.Tenant == "" || c.Role == Self {
		attributes["user"] = c.Name
	}
	return attributes
}

// checkSubject checks the Subject of a caller.
func checkSubject(role Role, subject string) error {
	name, value, _ := strings.Cut(subject, "=")
	switch {
	case subject == "":
		return nil
	case role != Self:
		return fmt.Errorf("%s=: only valid with the role self, not with %s", name, role)
	case name != "user" && name != "api_key" || value == "":
		return errors.New("invalid subject: write user=NAME, or api_key= and the hash of the key")
	case name == "api_key" && !headgate.IsKeyHash(value):
		return errors.New("api_key=: not a hash: write sha256: and 22 characters, so that the key itself is not stored")
	}
	return nil
}

// who returns the caller as the author of a change, bound to the quotas of its tenant.
func (c Caller) who(comment string) pgrules.Who {
	return pgrules.Who{Name: c.Name, Comment: comment, Tenant: c.Tenant}
}

// owns reports whether a caller may read and change data of a tenant; "" is data of operators.
func (c Caller) owns(tenant string) bool { return c.Tenant == "" || c.Tenant == tenant }

// Authority identifies callers by their token.
type Authority interface {
	// Caller returns the caller that a token belongs to. It fails if the token is invalid or the lookup fails. Errors must not
	// contain any part of the token.
	Caller(ctx context.Context, token string) (Caller, error)
}

// tokenError is why a token is invalid, as a message for the caller.
type tokenError string

func (e tokenError) Error() string { return string(e) }

const errUnknownToken = tokenError("unknown token: headgate token create NAME makes a token, and its line for the file " +
	"that admin.tokens_file names")

// Authorities look a token up in their order. If the lookup of one fails, the others are still tried.
type Authorities []Authority

// Caller returns the caller from the first authority that knows the token.
func (all Authorities) Caller(ctx context.Context, token string) (Caller, error) {
	var failure error
	invalid := errUnknownToken
	for _, authority := range all {
		caller, err := authority.Caller(ctx, token)
		var reason tokenError
		switch {
		case err == nil:
			return caller, nil
		case !errors.As(err, &reason):
			failure = err
		case reason != errUnknownToken:
			invalid = reason
		}
	}
	if failure != nil {
		return Caller{}, failure
	}
	return Caller{}, invalid
}

// Lookup is an Authority that finds the caller of a token by its SHA-256. It returns false if the token is unknown.
type Lookup func(ctx context.Context, sum [sha256.Size]byte) (Caller, bool, error)

// Caller looks up the token.
func (find Lookup) Caller(ctx context.Context, token string) (Caller, error) {
	caller, ok, err := find(ctx, sha256.Sum256([]byte(token)))
	if err == nil && !ok {
		err = errUnknownToken
	}
	return caller, err
}
