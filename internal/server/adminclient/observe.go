package adminclient

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/internal/server/offenders"
)

// Nodes returns which servers run which version of the rules.
func (c *Client) Nodes(ctx context.Context) (adminapi.Nodes, error) {
	return ask[adminapi.Nodes](ctx, c, http.MethodGet, adminapi.NodesPath, nil)
}

// Explain returns whether a request would be denied now, and why.
func (c *Client) Explain(ctx context.Context, q explain.Question) (*explain.Report, error) {
	r, err := ask[explain.Report](ctx, c, http.MethodPost, adminapi.ExplainPath, q)
	switch {
	case DeniedWith(err, http.StatusNotFound), DeniedWith(err, http.StatusMethodNotAllowed):
		return nil, c.stranger()
	case err != nil:
		return nil, err
	case r.Version > explain.Version:
		return nil, fmt.Errorf("%s is newer than this headgate, and answers in version %d: take a newer headgate", c.Server, r.Version)
	case r.Version != explain.Version:
		return nil, c.stranger()
	}
	return &r, nil
}

// Top asks all nodes through the server. The query is that of the API.
func (c *Client) Top(ctx context.Context, q url.Values) (adminapi.Top, error) {
	t, err := ask[adminapi.Top](ctx, c, http.MethodGet, adminapi.TopPath+"?"+q.Encode(), nil)
	if err == nil && t.WindowSeconds < 1 {
		err = c.stranger()
	}
	t.Denied, t.Near = append([]offenders.Limited{}, t.Denied...), append([]offenders.Near{}, t.Near...)
	return t, err
}

// Denials asks all nodes through the server. The query is that of the API.
func (c *Client) Denials(ctx context.Context, q url.Values) (adminapi.Denials, error) {
	d, err := ask[adminapi.Denials](ctx, c, http.MethodGet, adminapi.DenialsPath+"?"+q.Encode(), nil)
	if err == nil && d.Since.IsZero() {
		err = c.stranger()
	}
	d.Denials = append([]denials.Record{}, d.Denials...)
	return d, err
}
