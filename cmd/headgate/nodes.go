package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/wording"
)

// nodesReport is the JSON of "nodes".
type nodesReport struct {
	Version int `json:"version"`
	// RulesVersion is the newest version of the rules, and Revision that of everything, overrides and exemptions included.
	RulesVersion int64       `json:"rules_version"`
	Revision     int64       `json:"revision"`
	Nodes        []nodeState `json:"nodes"`
}

// nodeState is one of the nodes in the JSON of the admin API.
type nodeState struct {
	Name       string    `json:"node"`
	Version    int64     `json:"version"`
	Revision   int64     `json:"revision"`
	Behind     bool      `json:"behind"`
	Problem    string    `json:"problem"`
	StartedAt  time.Time `json:"startedAt"`
	AgeSeconds float64   `json:"ageSeconds"`
}

func newNodesCommand(p *program) *cobra.Command {
	return asking(&cobra.Command{
		Use:   "nodes --server ADDRESS",
		Short: "Show which servers run which version of the rules",
		Long: `Show all servers that follow the same PostgreSQL, and which version of the rules each of them runs.

Exit code: 0 all run the newest; 1 one of them is behind or has a problem; 2 the server cannot be asked.`,
		Example: "  headgate nodes --server https://gate:8083 --token-file token",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, s *adminServer, _ []string) error {
		var there struct {
			Version, Revision int64
			Nodes             []nodeState
		}
		if err := s.call(ctx, http.MethodGet, "/v1/rate-limit/nodes", nil, &there); err != nil {
			return err
		}
		r := nodesReport{jsonVersion, there.Version, there.Revision, append([]nodeState{}, there.Nodes...)}
		for _, n := range r.Nodes {
			if n.Behind || n.Problem != "" {
				return p.end(&r, no())
			}
		}
		return p.end(&r, nil)
	})
}

func (r *nodesReport) text() string {
	rows := [][]string{{"NODE", "VERSION", "HEARD OF", "STATE"}}
	behind := 0
	for _, n := range r.Nodes {
		state := "ok"
		switch {
		case n.Problem != "":
			state = n.Problem
		case n.Version < r.RulesVersion:
			state = "behind"
		case n.Behind:
			state = "behind with overrides or exemptions"
		}
		if state != "ok" {
			behind++
		}
		heard := time.Duration(n.AgeSeconds * float64(time.Second)).Round(time.Second)
		rows = append(rows, []string{n.Name, number(n.Version), heard.String() + " ago", state})
	}
	return fmt.Sprintf("the rules are at version %d; %s, %d behind\n", r.RulesVersion, wording.Count(len(r.Nodes), "node"), behind) +
		table(rows...)
}
