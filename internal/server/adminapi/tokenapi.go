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

// token is one in the database as callers see it. Secret is the token itself, which is shown once and stored nowhere.
type token struct {
	ID        int64      `json:"tokenId"`
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Tenant    string     `json:"tenant,omitempty"`
	Subject   string     `json:"subject,omitempty"`
	CreatedBy string     `json:"createdBy,omitempty"`
	CreatedAt *time.Time `json:"createdAt,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
	Secret    string     `json:"token,omitempty"`
}

func tokenOf(t *pgrules.Token) token {
	return token{t.ID, t.Name, t.Role, t.Tenant, t.Subject, t.CreatedBy, &t.CreatedAt, t.Expires, t.RevokedAt, ""}
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
	return answerPage(w, page, "tokens", all, func(t *pgrules.Token) int64 { return t.ID }, tokenOf)
}

func (a *api) createToken(w http.ResponseWriter, r *http.Request, by Caller) error {
	wanted, err := read[struct {
		Name      string     `json:"name"`
		Role      string     `json:"role"`
		Tenant    string     `json:"tenant"`
		Subject   string     `json:"subject"`
		ExpiresAt *time.Time `json:"expiresAt"`
	}](w, r, maxBody, `{"name": "ann", "role": "editor", "tenant": "acme", "expiresAt": "2027-01-31T18:00:00Z"}`)
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
	made := token{
		Name: wanted.Name, Role: wanted.Role, Tenant: wanted.Tenant, Subject: wanted.Subject, ExpiresAt: wanted.ExpiresAt,
		CreatedBy: by.Name, Secret: secret,
	}
	stored := pgrules.Token{Name: made.Name, Role: made.Role, Tenant: made.Tenant, Subject: made.Subject, Expires: made.ExpiresAt}
	sum := sha256.Sum256([]byte(secret))
	if made.ID, err = a.DB.AddToken(r.Context(), by.who(""), stored, sum); err != nil {
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
