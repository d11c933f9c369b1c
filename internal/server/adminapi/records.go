package adminapi

import (
	"net/http"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// AuditEntry is a change.
type AuditEntry = pgrules.AuditEntry

func (a *api) listAudit(w http.ResponseWriter, r *http.Request, by Caller) error {
	page, q, err := readPage(r, "rule")
	if err != nil {
		return err
	}
	all, err := a.DB.Audit(r.Context(), q.Get("rule"), by.Tenant, page)
	if err != nil {
		return err
	}
	return answerPage(w, page, "entries", all, func(e *AuditEntry) int64 { return e.ID })
}

// Nodes are all servers that follow the same PostgreSQL, with the newest version of its rules, and the revision of everything,
// overrides and exemptions included.
type Nodes struct {
	Version  int64  `json:"version"`
	Revision int64  `json:"revision"`
	Nodes    []Node `json:"nodes"`
}

// Node is one of them.
type Node struct {
	pgrules.Node
	// Behind is whether it does not run what is there.
	Behind bool `json:"behind"`
}

func (a *api) listNodes(w http.ResponseWriter, r *http.Request, _ Caller) error {
	version, revision, _, err := a.DB.Present(r.Context())
	if err != nil {
		return err
	}
	nodes, err := a.DB.Nodes(r.Context())
	if err != nil {
		return err
	}
	all := Nodes{version, revision, []Node{}}
	for _, n := range nodes {
		all.Nodes = append(all.Nodes, Node{n, n.Version < version || n.Seq < revision})
	}
	return answer(w, http.StatusOK, all)
}
