package adminapi

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// Token is what is known of a token in the database.
type Token = pgrules.Token

// TokenRequest is a token to be made.
type TokenRequest struct {
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Tenant    string     `json:"tenant,omitzero"`
	Subject   string     `json:"subject,omitzero"`
	ExpiresAt *time.Time `json:"expiresAt,omitzero"`
}

// CreatedToken is a token that was made. Secret is the token itself, which is shown once and stored nowhere.
type CreatedToken struct {
	Token
	Secret string `json:"token"`
}

func (a *api) listTokens(c *call) (any, error) {
	id := func(t *Token) int64 { return t.ID }
	return list(c, "tokens", id, nil, func(_ url.Values, page pgrules.Page) ([]Token, error) {
		return a.DB.Tokens(c.Context(), page)
	})
}

func (a *api) createToken(c *call) (any, error) {
	wanted, err := read[TokenRequest](c,
		`{"name": "ann", "role": "editor", "tenant": "acme", "expiresAt": "2027-01-31T18:00:00Z"}`)
	if err != nil {
		return nil, err
	}
	if err := checkExpiry(wanted.ExpiresAt); err != nil {
		return nil, err
	}
	wanted.Role = cmp.Or(wanted.Role, string(Viewer))
	if wanted.Role == string(CallerRole) {
		return nil, unusable("callers of the data plane have their tokens in the file that listen.tokens_file names: make one there, " +
			"headgate token create NAME --role caller")
	}
	rights := []string{wanted.Role}
	if wanted.Tenant != "" {
		rights = append(rights, "tenant="+wanted.Tenant)
	}
	if wanted.Subject != "" {
		if key, ok := strings.CutPrefix(wanted.Subject, "api_key="); ok {
			wanted.Subject = "api_key=" + headgate.EnsureKeyHash(key)
		}
		if err := checkSubject(Role(wanted.Role), wanted.Subject); err != nil {
			return nil, unusable("%s", err)
		}
	}
	secret, _, err := NewToken(wanted.Name, rights...)
	if err != nil {
		return nil, unusable("%s", err)
	}
	made := CreatedToken{Token{
		Name: wanted.Name, Role: wanted.Role, Tenant: wanted.Tenant, Subject: wanted.Subject, ExpiresAt: wanted.ExpiresAt,
		CreatedBy: c.by.Name,
	}, secret}
	made.ID, err = a.DB.AddToken(c.Context(), c.by.who(""), made.Token, sha256.Sum256([]byte(secret)))
	return created{fmt.Sprintf("%s/%d", TokensPath, made.ID), made}, err
}

func (a *api) revokeToken(c *call) (any, error) {
	id, err := c.pathNumber("tokenId")
	if err == nil {
		err = a.DB.RevokeToken(c.Context(), c.by.who(""), id)
	}
	return nil, err
}
