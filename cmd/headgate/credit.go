package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/spf13/cobra"
)

// giveBackExitCodes ends the help of the commands that give units back.
const giveBackExitCodes = `

Exit codes:
  0  the units were given back
  1  a region did not respond: it is unknown whether it gave back units, or it gave back nothing
  2  the server cannot be queried`

func newReset(p *program) *cobra.Command {
	return newCredit(p, &cobra.Command{
		Use:   "reset RULE SUBJECT --server ADDRESS",
		Short: "Reset the usage of a subject to zero",
		Long: `Reset the usage of a subject under a rule to zero, except for units held by reservations, and show the new usage. The usage of a
limit that regions share is reset in all regions.

SUBJECT is the attributes that the rule counts by: tenant=acme, or tenant=acme,user=ann. For a rule with one counter for
all clients, write all.` + giveBackExitCodes,
		Example: "  headgate reset exports tenant=acme,user=ann --reason \"our mistake\" --server https://gate:8083",
		Args:    cobra.ExactArgs(2),
	})
}

func newGrant(p *program) *cobra.Command {
	return newCredit(p, &cobra.Command{
		Use:   "grant RULE SUBJECT UNITS --server ADDRESS",
		Short: "Give used units back to a subject",
		Long: `Give back units that a subject has used under a rule, at most as many as it has used, and show the new usage. To raise a
limit, use headgate override. Units of a limit that regions share are given back in this region as far as they were used here, and
the rest in others.

SUBJECT is the attributes that the rule counts by: tenant=acme, or tenant=acme,user=ann. For a rule with one counter for
all clients, write all.` + giveBackExitCodes,
		Example: "  headgate grant exports tenant=acme,user=ann 100 --reason \"our mistake\" --server https://gate:8083",
		Args:    cobra.ExactArgs(3),
	})
}

// allClients is the SUBJECT of a rule with one counter for all clients.
const allClients = "all"

// parseCounted parses the SUBJECT of a rule.
func parseCounted(text string) (subject headgate.Attributes, notes []string, err error) {
	if text == allClients {
		return headgate.Attributes{}, nil, nil
	}
	if subject, notes, err = parseSubject(text); err != nil {
		err = &usageError{err}
	}
	return subject, notes, err
}

// newCredit completes reset or grant, the two commands that give units back.
func newCredit(p *program, cmd *cobra.Command) *cobra.Command {
	var credit adminapi.Credit
	p.serverCommand(cmd, func(ctx context.Context, c *adminclient.Client, args []string) (_ report, err error) {
		var notes []string
		if credit.Subject, notes, err = parseCounted(args[1]); err != nil { //nolint:contextcheck // it returns immediately
			return nil, err
		}
		if len(args) > 2 {
			if credit.Units, err = strconv.ParseInt(args[2], 10, 64); err != nil || credit.Units < 1 || credit.Units > headgate.MaxCost {
				return nil, &usageError{fmt.Errorf("units %q: must be 1 to %d", args[2], headgate.MaxCost)}
			}
		}
		u, err := c.Give(ctx, cmd.Name(), args[0], &credit)
		for _, p := range u.RegionProblems {
			notes = append(notes, fmt.Sprintf("region %s %s", p.Region, printable(p.Problem)))
		}
		return &usageReport{[]adminapi.Usage{u}, append([]string{}, notes...)}, cmp.Or(err, failUnless(len(u.RegionProblems) == 0))
	})
	cmd.Flags().StringVar(&credit.Reason, "reason", "", "`TEXT` for the rule's history")
	return cmd
}
