package adminapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules"
)

// auditEntry is a change as callers see it. Old and New are rows of the tables.
type auditEntry struct {
	ID        int64           `json:"id"`
	Object    string          `json:"object"`
	Action    string          `json:"action"`
	Rule      string          `json:"rule,omitempty"`
	Old       json.RawMessage `json:"old,omitempty"`
	New       json.RawMessage `json:"new,omitempty"`
	Version   int64           `json:"version,omitempty"`
	Actor     string          `json:"actor"`
	CreatedAt time.Time       `json:"createdAt"`
}

func (a *api) listAudit(w http.ResponseWriter, r *http.Request, by Caller) error {
	page, q, err := readPage(r, "rule")
	if err != nil {
		return err
	}
	all, err := a.DB.Audit(r.Context(), q.Get("rule"), by.Tenant, page)
	if err != nil {
		return err
	}
	return answerPage(w, page, "entries", all, func(e *pgrules.AuditEntry) int64 { return e.ID },
		func(e *pgrules.AuditEntry) auditEntry {
			return auditEntry{e.ID, e.Object, e.Action, e.Rule, e.Old, e.New, e.Version, e.Actor, e.CreatedAt}
		})
}

// node is a server as callers see it.
type node struct {
	Name     string `json:"node"`
	Version  int64  `json:"version"`
	Revision int64  `json:"revision"`
	// Behind is whether it does not run what is there.
	Behind     bool      `json:"behind"`
	Problem    string    `json:"problem"`
	StartedAt  time.Time `json:"startedAt"`
	AgeSeconds float64   `json:"ageSeconds"`
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
	return answer(w, http.StatusOK, struct {
		Version  int64  `json:"version"`
		Revision int64  `json:"revision"`
		Nodes    []node `json:"nodes"`
	}{version, revision, convert(nodes, func(n *pgrules.Node) node {
		behind := n.Version < version || n.Seq < revision
		return node{n.Name, n.Version, n.Seq, behind, n.Problem, n.StartedAt, n.AgeSeconds}
	})})
}
