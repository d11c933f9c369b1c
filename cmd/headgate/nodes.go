package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
)

// nodesReport is the JSON of "nodes".
type nodesReport struct {
	// RulesVersion is the latest version of the rules. Revision also counts changes of overrides and exemptions.
	RulesVersion int64           `json:"rules_version"`
	Revision     int64           `json:"revision"`
	Nodes        []adminapi.Node `json:"nodes"`
}

func newNodesCommand(p *program) *cobra.Command {
	return p.serverCommand(&cobra.Command{
		Use:   "nodes --server ADDRESS",
		Short: "List the servers and the version of the rules that each one runs",
		Long: `List the servers that load their rules from the same PostgreSQL, and the version that each one runs.

Exit codes:
  0  all servers run the latest version
  1  a server is behind or reports a problem
  2  the server cannot be queried`,
		Example: "  headgate nodes --server https://gate:8083 --token-file token",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (report, error) {
		r, err := listNodes(ctx, c)
		if err != nil {
			return nil, err
		}
		return r, failUnless(r.behind() == 0)
	})
}

func listNodes(ctx context.Context, c *adminclient.Client) (*nodesReport, error) {
	list, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return &nodesReport{list.Version, list.Revision, append([]adminapi.Node{}, list.Nodes...)}, nil
}

// behind returns the number of nodes that do not run the latest version, or report a problem.
func (r *nodesReport) behind() (count int) {
	for _, n := range r.Nodes {
		if n.Behind || n.Problem != "" {
			count++
		}
	}
	return count
}

// silentSeconds is the age of a report from which on a node is shown as not seen. Nodes report every few seconds.
const silentSeconds = 30

func (r *nodesReport) text() string {
	rows := [][]string{{"NODE", "VERSION", "LAST SEEN", "STATUS"}}
	for _, n := range r.Nodes {
		status := "ok"
		switch {
		case n.Problem != "":
			status = printable(n.Problem)
		case n.Version < r.RulesVersion:
			status = "behind"
		case n.Behind:
			status = "behind on overrides or exemptions"
		case n.AgeSeconds > silentSeconds:
			status = "not seen: stopped, or cannot write to PostgreSQL"
		}
		lastSeen := time.Duration(n.AgeSeconds * float64(time.Second)).Round(time.Second)
		rows = append(rows, []string{printable(n.Name), number(n.Version), lastSeen.String() + " ago", status})
	}
	return fmt.Sprintf("rules version %d; %s, %d behind\n", r.RulesVersion, wording.Count(len(r.Nodes), "node"), r.behind()) +
		wording.Table("", rows...)
}
