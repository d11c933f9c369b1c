package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
)

// exemptReport is the JSON of "exempt add".
type exemptReport struct {
	Exemption adminapi.Exemption `json:"exemption"`
}

// exemptList is the JSON of "exempt list".
type exemptList struct {
	Exemptions []adminapi.Exemption `json:"exemptions"`
	// More says that there are others.
	More bool `json:"more"`
}

func newExempt(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "exempt", Short: "Free subjects from a rule, on a server with PostgreSQL"}
	cmd.AddCommand(newExemptAdd(p), newExemptList(p), newRemove(p, "exemption", adminapi.ExemptionsPath))
	return cmd
}

func newExemptAdd(p *program) *cobra.Command {
	var x adminapi.NewExemption
	var expires string
	var all bool
	values := map[string]*string{"user": new(string), "api_key": new(string), "ip_cidr": new(string), "service_account": new(string)}
	cmd := p.asking(&cobra.Command{
		Use:   "add (RULE | --all) (--user NAME | --api-key KEY | --ip-cidr NETWORK | --service-account NAME) --server ADDRESS",
		Short: "Free a subject from a rule, or from all",
		Long: `Free a subject from a rule, or from all; if it is already, when that ends and why is replaced.

An api_key is hashed here and never sent. Others who use this machine can see what is typed: give its hash, which headgate
explain shows, where that matters.`,
		Example: "  headgate exempt add search-by-key --user ann --expires 72h --reason \"load test\" --server https://gate:8083",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (_ report, err error) {
		if all == (len(args) == 1) {
			return nil, &usageError{errors.New("say from which rule, or give --all for all of them")}
		}
		for kind, value := range values {
			if *value == "" {
				continue
			}
			if x.SubjectType != "" {
				return nil, &usageError{errors.New("one exemption is of one subject: give one of --user, --api-key, --ip-cidr and " +
					"--service-account")}
			}
			x.SubjectType, x.SubjectValue = kind, *value
		}
		if x.SubjectType == "" {
			return nil, &usageError{errors.New("say who is exempt: --user, --api-key, --ip-cidr or --service-account")}
		}
		if x.SubjectType == "api_key" {
			x.SubjectValue = headgate.EnsureKeyHash(x.SubjectValue)
		}
		if x.ExpiresAt, err = readExpiry(expires, time.Now()); err != nil {
			return nil, &usageError{fmt.Errorf("--expires %w", err)}
		}
		stored, err := c.Exempt(ctx, strings.Join(args, ""), &x)
		return &exemptReport{stored}, err
	})
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "from all rules")
	flags.StringVar(values["user"], "user", "", "`NAME` of a user")
	flags.StringVar(values["api_key"], "api-key", "", "`KEY`, or its hash: sha256:…")
	flags.StringVar(values["ip_cidr"], "ip-cidr", "", "`NETWORK`: 192.0.2.0/24")
	flags.StringVar(values["service_account"], "service-account", "", "`NAME` of a service account")
	flags.StringVar(&expires, "expires", "", "`WHEN` it ends: 2026-12-01, 2026-12-01T18:00:00Z, 72h or 14d; without it never")
	flags.StringVar(&x.Reason, "reason", "", "`TEXT` for those who find it later")
	return cmd
}

func (r *exemptReport) text() string {
	x := &r.Exemption
	return fmt.Sprintf("exemption %d: %s is free of %s until %s\n", x.ID, exemptSubject(x), exemptFrom(x), until(x.ExpiresAt))
}

func exemptSubject(x *adminapi.Exemption) string { return x.SubjectType + "=" + x.SubjectValue }

func exemptFrom(x *adminapi.Exemption) string { return cmp.Or(x.Rule, "all rules") }

func newExemptList(p *program) *cobra.Command {
	var rule string
	var all bool
	cmd := p.asking(&cobra.Command{
		Use:     "list --server ADDRESS",
		Short:   "Show exemptions that have not ended",
		Example: "  headgate exempt list --rule search-by-key --server https://gate:8083",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (report, error) {
		exemptions, more, err := c.Exemptions(ctx, rule, mostOf(all, usualList))
		return &exemptList{exemptions, more}, err
	})
	cmd.Flags().StringVar(&rule, "rule", "", "only those from this `RULE`")
	cmd.Flags().BoolVar(&all, "all", false, "show more than "+wording.Number(usualList))
	return cmd
}

func (r *exemptList) text() string {
	if len(r.Exemptions) == 0 {
		return "there are no such exemptions\n"
	}
	rows := [][]string{{"ID", "RULE", "SUBJECT", "UNTIL", "BY", "REASON"}}
	for i := range r.Exemptions {
		x := &r.Exemptions[i]
		rows = append(rows, []string{number(x.ID), exemptFrom(x), exemptSubject(x), until(x.ExpiresAt), x.CreatedBy, x.Reason})
	}
	return wording.Table("", rows...) + moreText(r.More)
}
