package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
)

// nodesReport is the JSON of "nodes".
type nodesReport struct {
	// RulesVersion is the newest version of the rules, and Revision that of everything, overrides and exemptions included.
	RulesVersion int64           `json:"rules_version"`
	Revision     int64           `json:"revision"`
	Nodes        []adminapi.Node `json:"nodes"`
}

func newNodesCommand(p *program) *cobra.Command {
	return p.asking(&cobra.Command{
		Use:   "nodes --server ADDRESS",
		Short: "Show which servers run which version of the rules",
		Long: `Show all servers that follow the same PostgreSQL, and which version of the rules each of them runs.

Exit code: 0 all run the newest; 1 one of them is behind or has a problem; 2 the server cannot be asked.`,
		Example: "  headgate nodes --server https://gate:8083 --token-file token",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (report, error) {
		there, err := c.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		r := nodesReport{there.Version, there.Revision, append([]adminapi.Node{}, there.Nodes...)}
		return &r, verdict(!slices.ContainsFunc(r.Nodes, func(n adminapi.Node) bool { return n.Behind || n.Problem != "" }))
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
		wording.Table("", rows...)
}
