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

// Nodes returns the servers and the version of the rules that each of them runs.
func (c *Client) Nodes(ctx context.Context) (adminapi.Nodes, error) {
	return get[adminapi.Nodes](ctx, c, http.MethodGet, adminapi.NodesPath, nil)
}

// Regions returns the state of all regions.
func (c *Client) Regions(ctx context.Context) (adminapi.RegionsStatus, error) {
	r, err := get[adminapi.RegionsStatus](ctx, c, http.MethodGet, adminapi.RegionsPath, nil)
	switch {
	case HasStatus(err, http.StatusNotFound):
		return r, fmt.Errorf("%s: the server is older than this headgate and cannot show regions: upgrade the server", c.Server)
	case err == nil && r.Region == "":
		return r, c.notAdminAPI()
	}
	return r, err
}

// Explain returns whether a request would be denied now, and why.
func (c *Client) Explain(ctx context.Context, q explain.Question) (*explain.Report, error) {
	r, err := get[explain.Report](ctx, c, http.MethodPost, adminapi.ExplainPath, q)
	switch {
	case HasStatus(err, http.StatusNotFound), HasStatus(err, http.StatusMethodNotAllowed):
		return nil, c.notAdminAPI()
	case err != nil:
		return nil, err
	case r.Version > explain.Version:
		return nil, fmt.Errorf("%s: report version %d is newer than this headgate: install a newer headgate", c.Server, r.Version)
	case r.Version != explain.Version:
		return nil, c.notAdminAPI()
	}
	return &r, nil
}

// Top returns the subjects denied most, of all nodes. q has the query parameters of the API.
func (c *Client) Top(ctx context.Context, q url.Values) (adminapi.Top, error) {
	t, err := get[adminapi.Top](ctx, c, http.MethodGet, adminapi.TopPath+"?"+q.Encode(), nil)
	if err == nil && t.WindowSeconds < 1 {
		err = c.notAdminAPI()
	}
	t.Denied, t.Near = append([]offenders.Limited{}, t.Denied...), append([]offenders.Near{}, t.Near...)
	return t, err
}

// Denials returns the latest denials of all nodes. q has the query parameters of the API.
func (c *Client) Denials(ctx context.Context, q url.Values) (adminapi.Denials, error) {
	d, err := get[adminapi.Denials](ctx, c, http.MethodGet, adminapi.DenialsPath+"?"+q.Encode(), nil)
	if err == nil && d.Since.IsZero() {
		err = c.notAdminAPI()
	}
	d.Denials = append([]denials.Record{}, d.Denials...)
	return d, err
}
