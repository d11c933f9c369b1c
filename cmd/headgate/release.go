package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
)

func newRelease(p *program) *cobra.Command {
	var r adminapi.Release
	cmd := p.serverCommand(&cobra.Command{
		Use:   "release RULE SUBJECT HOLDER --server ADDRESS",
		Short: "Release the units of a concurrency limit that a node has",
		Long: `Release the units that a node has of a concurrency limit, for requests that never end. They no longer count, even if they
still run.

headgate explain shows the nodes with their HOLDER. SUBJECT is the attributes that the rule counts by: tenant=acme, or
tenant=acme,user=ann. For a rule with one counter for all clients, write all.`,
		Example: "  headgate release exports tenant=acme 3f9c06d1a7b52000 --reason \"hung workers\" --server https://gate:8083",
		Args:    cobra.ExactArgs(3),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (_ report, err error) {
		if r.Subject, _, err = parseCounted(args[1]); err != nil { //nolint:contextcheck // it returns immediately
			return nil, err
		}
		r.Holder = args[2]
		released, err := c.Release(ctx, args[0], &r)
		return &releaseReport{released}, err
	})
	cmd.Flags().StringVar(&r.Reason, "reason", "", "`TEXT` for the rule's history")
	return cmd
}

// releaseReport is what was released.
type releaseReport struct{ adminapi.Released }

func (r *releaseReport) text() string {
	return fmt.Sprintf("released %s of %s\n", wording.Count(int(r.Units), "unit"), cmp.Or(r.Node, "a node that is not running"))
}
