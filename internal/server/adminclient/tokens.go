package adminclient

import (
	"context"
	"math"
	"net/http"
	"net/url"

	"github.com/headgate/headgate/internal/server/adminapi"
)

// Tokens returns all tokens, including revoked tokens.
func (c *Client) Tokens(ctx context.Context) ([]adminapi.Token, error) {
	all, _, err := list[adminapi.Token](ctx, c, adminapi.TokensPath, "tokens", url.Values{}, math.MaxInt)
	return all, err
}

// CreateToken makes the server create a token.
func (c *Client) CreateToken(ctx context.Context, t *adminapi.TokenRequest) (adminapi.CreatedToken, error) {
	return get[adminapi.CreatedToken](ctx, c, http.MethodPost, adminapi.TokensPath, t)
}
