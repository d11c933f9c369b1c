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
	cmd := p.asking(&cobra.Command{
		Use:   "rollback VERSION --server ADDRESS",
		Short: "Make a server's rules what they were in an earlier version",
		Long: `Make the rules of a server with PostgreSQL what they were in an earlier version, as a new version. What changes for whom is
shown before. Overrides and exemptions stay as they are.

Exit code: 0 the rules are as they were then; 1 they are not, because it was a dry run or you said no; 2 it could not be done.`,
		Example: "  headgate rules history --server https://gate:8083\n  headgate rules rollback 12 --server https://gate:8083",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (_ report, err error) {
		r := planReport{Notes: []string{}}
		to, err := readVersionNumber(args[0])
		if err != nil {
			return nil, err
		}
		if r.From, err = c.CurrentVersion(ctx); err != nil {
			return nil, err
		}
		if r.Changes, err = c.Diff(ctx, r.From, to); err != nil {
			return nil, err
		}
		return p.carryOut(ctx, &o, &r, func() (done adminapi.Published, err error) {
			// The API takes no base for this, so it is looked at as late as possible.
			if now, err := c.CurrentVersion(ctx); err != nil || now != r.From {
				return done, cmp.Or(err, fmt.Errorf("the rules are at version %d, and the plan is from %d: nothing was applied; run it again, "+
					"and look at the plan as it is now", now, r.From))
			}
			return c.Rollback(ctx, to, o.comment)
		})
	})
	o.flags(cmd)
	return cmd
}

func readVersionNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, &usageError{fmt.Errorf("%q is no version: headgate rules history shows their numbers", text)}
	}
	return n, nil
}
