package adminclient

import (
	"context"
	"math"
	"net/http"
	"net/url"

	"github.com/headgate/headgate/internal/server/adminapi"
)

// Tokens returns all tokens, those that were removed included.
func (c *Client) Tokens(ctx context.Context) ([]adminapi.Token, error) {
	all, _, err := list[adminapi.Token](ctx, c, adminapi.TokensPath, "tokens", url.Values{}, math.MaxInt)
	return all, err
}

// CreateToken has the server make a token.
func (c *Client) CreateToken(ctx context.Context, t *adminapi.TokenRequest) (adminapi.CreatedToken, error) {
	return ask[adminapi.CreatedToken](ctx, c, http.MethodPost, adminapi.TokensPath, t)
}
