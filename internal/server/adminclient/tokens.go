package adminclient

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"time"
)

// Token is one in PostgreSQL, without its secret.
type Token struct {
	ID        int64      `json:"tokenId,omitzero"`
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Tenant    string     `json:"tenant,omitzero"`
	CreatedBy string     `json:"createdBy,omitzero"`
	CreatedAt *time.Time `json:"createdAt,omitzero"`
	ExpiresAt *time.Time `json:"expiresAt,omitzero"`
	RevokedAt *time.Time `json:"revokedAt,omitzero"`
}

// Tokens returns all tokens, those that were removed included.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	all, _, err := list[Token](ctx, c, TokensPath, "tokens", url.Values{}, math.MaxInt)
	return all, err
}

// CreateToken has the server make a token, and returns its id and secret.
func (c *Client) CreateToken(ctx context.Context, t *Token) (id int64, secret string, err error) {
	made, err := ask[struct {
		TokenID int64
		Token   string
	}](ctx, c, http.MethodPost, TokensPath, t)
	return made.TokenID, made.Token, err
}
