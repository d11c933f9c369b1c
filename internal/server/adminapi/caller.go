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

// Role is what a caller may do. The empty one may do nothing, and neither may any that is not known.
type Role string

// A role may do all that those before it may: Self asks for its own usage, Viewer looks, Editor changes rules and what goes with
// them, Admin changes who may. CallerRole is apart: services and gateways with it use the data plane, and nothing of this API.
const (
	CallerRole Role = "caller"
	Self       Role = "self"
	Viewer     Role = "viewer"
	Editor     Role = "editor"
	Admin      Role = "admin"
)

var roles = []Role{CallerRole, Self, Viewer, Editor, Admin}

// atLeast is false for everybody if the least role is not known: it was forgotten somewhere.
func (r Role) atLeast(least Role) bool {
	needed := slices.Index(roles, least)
	return needed >= 0 && slices.Index(roles, r) >= needed
}

// Caller is who is asking.
type Caller struct {
	// Name is for logs and the audit.
	Name string
	Role Role
	// Tenant, if there is one, is all that the caller sees and changes.
	Tenant string
	// Subject is whose usage a caller with the role Self sees: user=NAME, or api_key= and the hash of a key. It is "" for those with
	// other roles, and for the user of the caller's name.
	Subject string
}

// subject returns the attributes that the caller's own requests are counted by, as far as its token says.
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

// checkSubject says what is wrong with the Subject of a caller.
func checkSubject(role Role, subject string) error {
	name, value, _ := strings.Cut(subject, "=")
	switch {
	case subject == "":
		return nil
	case role != Self:
		return fmt.Errorf("%s= goes with the role self, which sees its own usage and nothing else, not with %s", name, role)
	case name != "user" && name != "api_key" || value == "":
		return errors.New("the subject is user=NAME, or api_key= and the hash of the key")
	case name == "api_key" && !headgate.IsKeyHash(value):
		return errors.New("api_key= wants the hash of the key, sha256: and 22 characters, so that the key itself is stored nowhere")
	}
	return nil
}

// who is the caller as the database notes it, and bound to the caller's tenant and its quotas.
func (c Caller) who(comment string) pgrules.Who {
	return pgrules.Who{Name: c.Name, Comment: comment, Tenant: c.Tenant}
}

// owns says whether a caller may see and change what is a tenant's; "" is ours.
func (c Caller) owns(tenant string) bool { return c.Tenant == "" || c.Tenant == tenant }

// Authority knows whose tokens are.
type Authority interface {
	// Caller says whose a token is. It fails if the token is nobody's, or if that cannot be told now. No error may show
	// anything of the token.
	Caller(ctx context.Context, token string) (Caller, error)
}

// deniedError is why a token is nobody's, in words for whoever sent it.
type deniedError string

func (e deniedError) Error() string { return string(e) }

const errUnknown = deniedError("the token is not known; headgate token create NAME makes one, and the line of the file " +
	"that admin.tokens_file names")

// Authorities are asked in their order. One that cannot tell keeps no other from telling.
type Authorities []Authority

// Caller is what the first who knows the token says.
func (all Authorities) Caller(ctx context.Context, token string) (Caller, error) {
	var failure error
	denial := errUnknown
	for _, authority := range all {
		caller, err := authority.Caller(ctx, token)
		var denied deniedError
		switch {
		case err == nil:
			return caller, nil
		case !errors.As(err, &denied):
			failure = err
		case denied != errUnknown:
			denial = denied
		}
	}
	if failure != nil {
		return Caller{}, failure
	}
	return Caller{}, denial
}

// Lookup is an Authority that finds the owner of a token by its SHA-256, wherever tokens are kept; false if it is
// nobody's.
type Lookup func(ctx context.Context, sum [sha256.Size]byte) (Caller, bool, error)

// Caller looks the token up.
func (find Lookup) Caller(ctx context.Context, token string) (Caller, error) {
	caller, ok, err := find(ctx, sha256.Sum256([]byte(token)))
	if err == nil && !ok {
		err = errUnknown
	}
	return caller, err
}
