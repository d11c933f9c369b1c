package adminclient

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/internal/server/offenders"
)

// Nodes are all servers that follow the same PostgreSQL, with the newest version of its rules, and the revision of everything,
// overrides and exemptions included.
type Nodes struct {
	Version  int64
	Revision int64
	Nodes    []Node
}

// Node is one of them.
type Node struct {
	Name       string    `json:"node"`
	Version    int64     `json:"version"`
	Revision   int64     `json:"revision"`
	Behind     bool      `json:"behind"`
	Problem    string    `json:"problem"`
	StartedAt  time.Time `json:"startedAt"`
	AgeSeconds float64   `json:"ageSeconds"`
}

// Nodes returns which servers run which version of the rules.
func (c *Client) Nodes(ctx context.Context) (Nodes, error) {
	return ask[Nodes](ctx, c, http.MethodGet, "/v1/rate-limit/nodes", nil)
}

// Explain returns whether a request would be refused now, and why.
func (c *Client) Explain(ctx context.Context, q explain.Question) (*explain.Report, error) {
	r, err := ask[explain.Report](ctx, c, http.MethodPost, adminapi.ExplainPath, q)
	switch {
	case refusedWith(err, http.StatusNotFound), refusedWith(err, http.StatusMethodNotAllowed):
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

// Top is who was refused most lately, and who is nearest to a limit.
type Top struct {
	adminapi.Coverage
	At            time.Time           `json:"at"`
	WindowSeconds int                 `json:"windowSeconds"`
	Incomplete    bool                `json:"incomplete"`
	Refused       []offenders.Limited `json:"refused"`
	Near          []offenders.Near    `json:"near"`
}

// Top asks all nodes through the server. The query is that of the API.
func (c *Client) Top(ctx context.Context, q url.Values) (Top, error) {
	t, err := ask[Top](ctx, c, http.MethodGet, "/v1/rate-limit/top?"+q.Encode(), nil)
	if err == nil && t.WindowSeconds < 1 {
		err = c.stranger()
	}
	t.Refused, t.Near = append([]offenders.Limited{}, t.Refused...), append([]offenders.Near{}, t.Near...)
	return t, err
}

// Denials is what was refused lately.
type Denials struct {
	adminapi.Coverage
	Since time.Time `json:"since"`
	// From is when the oldest of what is remembered was: nobody knows what was before.
	From       time.Time        `json:"from"`
	Unrecorded int64            `json:"unrecorded"`
	Denials    []denials.Record `json:"denials"`
}

// Denials asks all nodes through the server. The query is that of the API.
func (c *Client) Denials(ctx context.Context, q url.Values) (Denials, error) {
	d, err := ask[Denials](ctx, c, http.MethodGet, "/v1/rate-limit/denials?"+q.Encode(), nil)
	if err == nil && d.Since.IsZero() {
		err = c.stranger()
	}
	d.Denials = append([]denials.Record{}, d.Denials...)
	return d, err
}
