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

// Token is a token in the database, without the secret.
type Token = pgrules.Token

// TokenRequest is the request to create a token.
type TokenRequest struct {
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Tenant    string     `json:"tenant,omitzero"`
	Subject   string     `json:"subject,omitzero"`
	ExpiresAt *time.Time `json:"expiresAt,omitzero"`
}

// CreatedToken is a token that was created. Secret is the token itself, which is shown once and not stored.
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
	request, err := read[TokenRequest](c,
		`{"name": "ann", "role": "editor", "tenant": "acme", "expiresAt": "2027-01-31T18:00:00Z"}`)
	if err != nil {
		return nil, err
	}
	if err := checkExpiry(request.ExpiresAt); err != nil {
		return nil, err
	}
	request.Role = cmp.Or(request.Role, string(Viewer))
	if request.Role == string(CallerRole) {
		return nil, unprocessable("role caller: tokens for the data plane are in the file that listen.tokens_file names: make one with " +
			"headgate token create NAME --role caller")
	}
	rights := []string{request.Role}
	if request.Tenant != "" {
		rights = append(rights, "tenant="+request.Tenant)
	}
	if request.Subject != "" {
		if key, ok := strings.CutPrefix(request.Subject, "api_key="); ok {
			request.Subject = "api_key=" + headgate.EnsureKeyHash(key)
		}
		if err := checkSubject(Role(request.Role), request.Subject); err != nil {
			return nil, unprocessable("%s", err)
		}
	}
	secret, _, err := NewToken(request.Name, rights...)
	if err != nil {
		return nil, unprocessable("%s", err)
	}
	token := CreatedToken{Token{
		Name: request.Name, Role: request.Role, Tenant: request.Tenant, Subject: request.Subject, ExpiresAt: request.ExpiresAt,
		CreatedBy: c.by.Name,
	}, secret}
	token.ID, err = a.DB.AddToken(c.Context(), c.by.who(""), token.Token, sha256.Sum256([]byte(secret)))
	return created{fmt.Sprintf("%s/%d", TokensPath, token.ID), token}, err
}

func (a *api) revokeToken(c *call) (any, error) {
	id, err := c.pathNumber("tokenId")
	if err == nil {
		err = a.DB.RevokeToken(c.Context(), c.by.who(""), id)
	}
	return nil, err
}
