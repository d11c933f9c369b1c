package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/spf13/cobra"
)

func newRollback(p *program) *cobra.Command {
	var o planOptions
	cmd := p.serverCommand(&cobra.Command{
		Use:   "rollback VERSION --server ADDRESS",
		Short: "Restore an earlier version of a server's rules",
		Long: `Restore an earlier version of the rules of a server with PostgreSQL, as a new version. The plan is shown first. Overrides
and exemptions do not change.

Exit codes:
  0  the version is restored
  1  not applied: --dry-run, or not confirmed
  2  error`,
		Example: "  headgate rules history --server https://gate:8083\n  headgate rules rollback 12 --server https://gate:8083",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (_ report, err error) {
		r := planReport{Notes: []string{}}
		to, err := parseVersionNumber(args[0])
		if err != nil {
			return nil, err
		}
		if r.From, err = c.CurrentVersion(ctx); err != nil {
			return nil, err
		}
		if r.Changes, err = c.Diff(ctx, r.From, to); err != nil {
			return nil, err
		}
		return p.applyPlan(ctx, &o, &r, func() (done adminapi.Published, err error) {
			// The API does not accept a base version for a rollback, so the check happens as late as possible.
			if now, err := c.CurrentVersion(ctx); err != nil || now != r.From {
				return done, cmp.Or(err, fmt.Errorf("the rules are at version %d, but the plan is based on version %d: nothing was applied; run the command again "+
					"and review the new plan", now, r.From))
			}
			return c.Rollback(ctx, to, o.comment)
		})
	})
	o.flags(cmd)
	return cmd
}

func parseVersionNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, &usageError{fmt.Errorf("invalid version %q: list the versions with headgate rules history", text)}
	}
	return n, nil
}
