package adminapi

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
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

func (a *api) listTokens(w http.ResponseWriter, r *http.Request, _ Caller) error {
	page, _, err := readPage(r)
	if err != nil {
		return err
	}
	all, err := a.DB.Tokens(r.Context(), page)
	if err != nil {
		return err
	}
	return answerPage(w, page, "tokens", all, func(t *Token) int64 { return t.ID })
}

func (a *api) createToken(w http.ResponseWriter, r *http.Request, by Caller) error {
	wanted, err := read[TokenRequest](w, r, maxBody,
		`{"name": "ann", "role": "editor", "tenant": "acme", "expiresAt": "2027-01-31T18:00:00Z"}`)
	if err != nil {
		return err
	}
	if err := checkExpiry(wanted.ExpiresAt); err != nil {
		return err
	}
	wanted.Role = cmp.Or(wanted.Role, string(Viewer))
	if wanted.Role == string(CallerRole) {
		return unusable("callers of the data plane have their tokens in the file that listen.tokens_file names: make one there, " +
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
			return unusable("%s", err)
		}
	}
	secret, _, err := NewToken(wanted.Name, rights...)
	if err != nil {
		return unusable("%s", err)
	}
	made := CreatedToken{Token{
		Name: wanted.Name, Role: wanted.Role, Tenant: wanted.Tenant, Subject: wanted.Subject, ExpiresAt: wanted.ExpiresAt,
		CreatedBy: by.Name,
	}, secret}
	sum := sha256.Sum256([]byte(secret))
	if made.ID, err = a.DB.AddToken(r.Context(), by.who(""), made.Token, sum); err != nil {
		return err
	}
	w.Header().Set("Location", fmt.Sprintf("%s/%d", tokensPath, made.ID))
	return answer(w, http.StatusCreated, made)
}

func (a *api) revokeToken(w http.ResponseWriter, r *http.Request, by Caller) error {
	id, err := pathNumber(r, "tokenId")
	if err == nil {
		err = a.DB.RevokeToken(r.Context(), by.who(""), id)
	}
	return answerRemoved(w, err)
}
