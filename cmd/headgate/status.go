package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/wording"
)

// The values of "status", of a node and of all.
const (
	statusOK          = "ok"
	statusDegraded    = "degraded"
	statusUnreachable = "unreachable"
)

// statusReport is the JSON of "status". Unknown values are null.
type statusReport struct {
	// Status is ok, degraded, or unreachable if no Headgate server answered.
	Status string `json:"status"`
	// WindowSeconds is how long rates were observed.
	WindowSeconds float64      `json:"window_seconds"`
	Nodes         []nodeStatus `json:"nodes"`
	// ControlPlane lists the nodes that PostgreSQL knows. It is null without an admin API and without PostgreSQL.
	ControlPlane *nodesReport `json:"control_plane"`
	Notes        []string     `json:"notes"`
}

// statusOptions holds the flags of status.
type statusOptions struct {
	ops    []string
	window time.Duration
	server adminclient.Options
}

func newStatus(p *program) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [--ops ADDRESS]...",
		Short: "Show the state of running servers: health, rules, Redis, decisions and latency",
		Long: `Show on one screen how running servers are: version, uptime, rules, Redis, decisions per second, the share that was denied and
the share decided without Redis, and p99 of decisions. It reads /readyz and /metrics of each server's listen.ops, twice, and
needs no token. What cannot be read is shown as unknown.

With --server, it also asks the admin API which servers run which version of the rules in PostgreSQL.

Exit codes:
  0  all servers are ok
  1  a server is degraded, not ready, unreachable or not a Headgate server, or servers run different rules
  2  no Headgate server can be reached`,
		Example: "  headgate status\n  headgate status --ops 10.0.0.1:8082 --ops 10.0.0.2:8082",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.window < 0 || o.window > time.Minute {
				return usage(cmd, fmt.Errorf("--window %s: must be 0s to 1m", o.window))
			}
			serverFromEnv(cmd, &o.server)
			r := o.collect(cmd.Context())
			switch r.Status {
			case statusOK:
				return p.finish(r, nil)
			case statusUnreachable:
				return p.finish(r, &exitError{code: 2})
			}
			return p.finish(r, failure())
		},
	}
	cmd.Flags().StringArrayVar(&o.ops, "ops", []string{config.Default().Listen.Ops}, "`ADDRESS` of a server's listen.ops; may be repeated")
	cmd.Flags().DurationVar(&o.window, "window", 2*time.Second, "how long to observe rates, up to 1m")
	serverFlags(cmd, &o.server)
	return cmd
}

// collect asks all servers at the same time.
func (o *statusOptions) collect(ctx context.Context) *statusReport {
	r := &statusReport{Status: statusOK, WindowSeconds: o.window.Seconds(), Nodes: make([]nodeStatus, len(o.ops)), Notes: []string{}}
	var asking sync.WaitGroup
	for i, address := range o.ops {
		asking.Go(func() { r.Nodes[i] = probeNode(ctx, address, o.window) })
	}
	var controlProblem error
	asking.Go(func() { r.ControlPlane, controlProblem = o.controlPlane(ctx) })
	asking.Wait()
	r.judge(controlProblem)
	return r
}

// controlPlane returns the nodes that PostgreSQL knows, or nil if the server has none.
func (o *statusOptions) controlPlane(ctx context.Context) (*nodesReport, error) {
	if o.server.Server == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	c, err := connect(o.server, nodeTimeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return listNodes(ctx, c)
}

// judge derives the overall status, and the notes.
func (r *statusReport) judge(controlProblem error) {
	reachable, known := 0, 0
	versions := map[string]bool{}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Status != statusOK {
			r.Status = statusDegraded
		}
		if !n.isHeadgate() {
			continue
		}
		reachable++
		known = max(known, n.NodesSeen)
		versions[n.Rules] = true
	}
	if reachable == 0 {
		r.Status = statusUnreachable
	}
	if len(versions) > 1 {
		r.Status = statusDegraded
		r.Notes = append(r.Notes, "servers run different rules: headgate rules validate on those that are behind, or headgate nodes")
	}
	if known > len(r.Nodes) {
		r.Notes = append(r.Notes, fmt.Sprintf("%d servers share this Redis, and %d of them were asked: name the others with --ops", known, reachable))
	}
	if r.ControlPlane != nil && r.ControlPlane.behind() > 0 {
		r.Status = statusDegraded
	}
	_, responded := errors.AsType[*adminclient.StatusError](controlProblem)
	inFiles := !slices.ContainsFunc(r.Nodes, func(n nodeStatus) bool { return n.RulesSource != rulesInFiles })
	if controlProblem != nil && (!responded || !inFiles) { // an admin API lists only servers with PostgreSQL
		r.Notes = append(r.Notes, "the admin API did not list the servers: "+printable(controlProblem.Error()))
	}
}

func (r *statusReport) text() string {
	rows := [][]string{{"SERVER", "STATUS", "VERSION", "UPTIME", "RULES", "REDIS", "DECISIONS/S", "DENIED", "LOCAL", "P99"}}
	var problems strings.Builder
	sinceStart := false
	for i := range r.Nodes {
		n := &r.Nodes[i]
		rows = append(rows, n.row())
		for _, problem := range n.Problems {
			fmt.Fprintf(&problems, "%s: %s\n", n.Address, printable(problem))
		}
		sinceStart = sinceStart || n.P99SinceStart
	}
	text := wording.Table("", rows...)
	if sinceStart {
		text += "* since the server's start, because there were few decisions\n"
	}
	if problems.Len() > 0 {
		text += "\n" + problems.String()
	}
	if r.ControlPlane != nil {
		text += "\n" + r.ControlPlane.text()
	}
	if len(r.Notes) > 0 {
		text += "\n" + notesText(r.Notes)
	}
	return text
}
