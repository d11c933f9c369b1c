package adminapi

import (
	"net/url"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// AuditEntry is a change in the audit.
type AuditEntry = pgrules.AuditEntry

func (a *api) listAudit(c *call) (any, error) {
	id := func(e *AuditEntry) int64 { return e.ID }
	return list(c, "entries", id, []string{"rule"}, func(q url.Values, page pgrules.Page) ([]AuditEntry, error) {
		return a.DB.Audit(c.Context(), q.Get("rule"), c.by.Tenant, page)
	})
}

// Nodes are all servers that follow the same PostgreSQL, with its current version of the rules, and its revision of everything,
// including overrides and exemptions.
type Nodes struct {
	Version  int64  `json:"version"`
	Revision int64  `json:"revision"`
	Nodes    []Node `json:"nodes"`
}

// Node is a server that follows PostgreSQL.
type Node struct {
	pgrules.Node
	// Behind is true if the node does not run the current state.
	Behind bool `json:"behind"`
}

func (a *api) listNodes(c *call) (any, error) {
	version, revision, _, err := a.DB.CurrentState(c.Context())
	if err != nil {
		return nil, err
	}
	nodes, err := a.DB.Nodes(c.Context())
	all := Nodes{version, revision, []Node{}}
	for _, n := range nodes {
		all.Nodes = append(all.Nodes, Node{n, n.Version < version || n.Seq < revision})
	}
	return all, err
}
