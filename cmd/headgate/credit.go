package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/spf13/cobra"
)

func newReset(p *program) *cobra.Command {
	return newCredit(p, &cobra.Command{
		Use:   "reset RULE SUBJECT --server ADDRESS",
		Short: "Give a subject back all that it has used of a rule",
		Long: `Give a subject back all that it has used of a rule, except for what reservations hold, and show what it has then.
SUBJECT is what the rule counts by: tenant=acme, or tenant=acme,user=ann; of a rule that counts everybody together it is
everybody.`,
		Example: "  headgate reset exports tenant=acme,user=ann --reason \"our mistake\" --server https://gate:8083",
		Args:    cobra.ExactArgs(2),
	})
}

func newGrant(p *program) *cobra.Command {
	return newCredit(p, &cobra.Command{
		Use:   "grant RULE SUBJECT UNITS --server ADDRESS",
		Short: "Give a subject back some of what it has used of a rule",
		Long: `Give a subject back some of what it has used of a rule, never more than that, and show what it has then. For
more than the limit, headgate override sets another. SUBJECT is what the rule counts by: tenant=acme, or
tenant=acme,user=ann; of a rule that counts everybody together it is everybody.`,
		Example: "  headgate grant exports tenant=acme,user=ann 100 --reason \"our mistake\" --server https://gate:8083",
		Args:    cobra.ExactArgs(3),
	})
}

// newCredit makes one of the two commands that give something back.
func newCredit(p *program, cmd *cobra.Command) *cobra.Command {
	var credit adminapi.Credit
	p.asking(cmd, func(ctx context.Context, c *adminclient.Client, args []string) (_ report, err error) {
		credit.Subject = headgate.Attributes{}
		var notes []string
		if args[1] != "everybody" {
			if credit.Subject, notes, err = readSubject(args[1]); err != nil { //nolint:contextcheck // it is over at once
				return nil, &usageError{err}
			}
		}
		if len(args) > 2 {
			if credit.Units, err = strconv.ParseInt(args[2], 10, 64); err != nil || credit.Units < 1 || credit.Units > headgate.MaxCost {
				return nil, &usageError{fmt.Errorf("%q are no units: write 1 to %d", args[2], headgate.MaxCost)}
			}
		}
		u, err := c.Give(ctx, cmd.Name(), args[0], &credit)
		return &usageReport{[]adminapi.Usage{u}, append([]string{}, notes...)}, err
	})
	cmd.Flags().StringVar(&credit.Reason, "reason", "", "`TEXT` for the history of the rule")
	return cmd
}
