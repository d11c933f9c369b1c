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
	// More reports whether further exemptions exist.
	More bool `json:"more"`
}

func newExempt(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "exempt", Short: "Exempt subjects from rules, on a server with PostgreSQL",
		Example: "  headgate exempt add search-by-key --user ann --expires +3d --server https://gate:8083",
	}
	cmd.AddCommand(newExemptAdd(p), newExemptList(p), newRemove(p, "exemption", adminapi.ExemptionsPath))
	return cmd
}

func newExemptAdd(p *program) *cobra.Command {
	var x adminapi.NewExemption
	var expires string
	var all bool
	values := map[string]*string{"user": new(string), "api_key": new(string), "ip_cidr": new(string), "service_account": new(string)}
	cmd := p.serverCommand(&cobra.Command{
		Use:   "add (RULE | --all) (--user NAME | --api-key KEY | --ip-cidr NETWORK | --service-account NAME) --server ADDRESS",
		Short: "Exempt a subject from a rule, or from all rules",
		Long: `Exempt a subject from a rule, or from all rules. If the subject is already exempt, its expiry and reason are replaced.

An API key is hashed locally and never sent. Other users of this machine can read command lines: where that matters, pass
the hash of the key, which headgate explain shows.`,
		Example: "  headgate exempt add search-by-key --user ann --expires 72h --reason \"load test\" --server https://gate:8083",
		Args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (_ report, err error) {
		if all == (len(args) == 1) {
			return nil, &usageError{errors.New("name a RULE, or use --all for all rules")}
		}
		for kind, value := range values {
			if *value == "" {
				continue
			}
			if x.SubjectType != "" {
				return nil, &usageError{errors.New("more than one subject given: use one of --user, --api-key, --ip-cidr and " +
					"--service-account")}
			}
			x.SubjectType, x.SubjectValue = kind, *value
		}
		if x.SubjectType == "" {
			return nil, &usageError{errors.New("no subject given: use --user, --api-key, --ip-cidr or --service-account")}
		}
		if x.SubjectType == "api_key" {
			x.SubjectValue = headgate.EnsureKeyHash(x.SubjectValue)
		}
		if x.ExpiresAt, err = parseExpiry(expires, time.Now()); err != nil {
			return nil, &usageError{fmt.Errorf("--expires: %w", err)}
		}
		stored, err := c.Exempt(ctx, strings.Join(args, ""), &x)
		return &exemptReport{stored}, err
	})
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "exempt from all rules")
	flags.StringVar(values["user"], "user", "", "`NAME` of the user")
	flags.StringVar(values["api_key"], "api-key", "", "API `KEY`, or its hash: sha256:…")
	flags.StringVar(values["ip_cidr"], "ip-cidr", "", "`NETWORK` in CIDR notation, such as 192.0.2.0/24")
	flags.StringVar(values["service_account"], "service-account", "", "`NAME` of the service account")
	expiresFlag(flags, &expires, "expiry `TIME`: "+expiryForms+" (default: never)")
	flags.StringVar(&x.Reason, "reason", "", "`TEXT` for the audit log")
	return cmd
}

func (r *exemptReport) text() string {
	x := &r.Exemption
	return fmt.Sprintf("exemption %d: %s exempt from %s; expires: %s\n", x.ID, exemptSubject(x), exemptFrom(x), formatLocalExpiry(x.ExpiresAt, time.Local))
}

func exemptSubject(x *adminapi.Exemption) string { return x.SubjectType + "=" + x.SubjectValue }

func exemptFrom(x *adminapi.Exemption) string { return cmp.Or(x.Rule, "all rules") }

func newExemptList(p *program) *cobra.Command {
	var rule string
	var all bool
	cmd := p.serverCommand(&cobra.Command{
		Use:     "list --server ADDRESS",
		Short:   "List active exemptions",
		Example: "  headgate exempt list --rule search-by-key --server https://gate:8083",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (report, error) {
		exemptions, more, err := c.Exemptions(ctx, rule, listLimit(all, defaultListed))
		return &exemptList{exemptions, more}, err
	})
	cmd.Flags().StringVar(&rule, "rule", "", "list only exemptions from this `RULE`")
	cmd.Flags().BoolVar(&all, "all", false, "list all entries (default: the first "+wording.Number(defaultListed)+")")
	return cmd
}

func (r *exemptList) text() string {
	if len(r.Exemptions) == 0 {
		return "no exemptions found\n"
	}
	rows := [][]string{{"ID", "RULE", "SUBJECT", "EXPIRES", "CREATED BY", "REASON"}}
	for i := range r.Exemptions {
		x := &r.Exemptions[i]
		rows = append(rows, []string{number(x.ID), exemptFrom(x), exemptSubject(x), formatExpiry(x.ExpiresAt), x.CreatedBy, x.Reason})
	}
	return wording.Table("", rows...) + moreText(r.More)
}
