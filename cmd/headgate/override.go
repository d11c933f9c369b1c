package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/spf13/cobra"
)

func newOverride(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "override", Short: "Override the limits of subjects, on a server with PostgreSQL",
		Example: "  headgate override set search-by-key tenant=acme 5000/minute --expires +3d --server https://gate:8083",
	}
	cmd.AddCommand(newOverrideSet(p), newOverrideList(p), newRemove(p, "override", adminapi.OverridesPath), newOverrideImport(p))
	return cmd
}

// overrideReport is the JSON of "override set".
type overrideReport struct {
	Override adminapi.StoredOverride `json:"override"`
	// Before is the previous limit of the subject, ignoring its tier, and After is the new limit. Both are null if nothing was
	// changed because the override has expired.
	Before *limitReport `json:"before"`
	After  *limitReport `json:"after"`
	Notes  []string     `json:"notes"`
}

func newOverrideSet(p *program) *cobra.Command {
	var o adminapi.Override
	var expires string
	var burst int64
	cmd := p.serverCommand(&cobra.Command{
		Use:   "set RULE SUBJECT LIMIT --server ADDRESS",
		Short: "Override the limit of a subject",
		Long: `Override the limit of a rule for a subject. An existing override is replaced. The subject's usage does not change. The limits
before and after the change are shown.

SUBJECT is the attributes that the rule counts by: tenant=acme, or tenant=acme,user=ann. An api_key is hashed locally and
never sent. Write a comma within a value as \, .

LIMIT is a rate such as 5000/minute, or a number, which changes only the count of the rule's limit. Without --burst, the
burst is scaled with the rate: if the rule has 1000/minute with burst 200, an override of 5000/minute has burst 1000. If
the rule has several limits, select one with --limit-name; the others do not change.`,
		Example: "  headgate override set search-by-key tenant=acme 5000/minute --expires 72h --reason launch --server https://gate:8083",
		Args:    cobra.ExactArgs(3),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (_ report, err error) {
		r := overrideReport{Notes: []string{}}
		o.Rule, o.Limit = args[0], args[2]
		subject, notes, err := parseSubject(args[1]) //nolint:contextcheck // it returns immediately
		if err != nil {
			return nil, &usageError{err}
		}
		o.Subject, r.Notes = subject, append(r.Notes, notes...)
		var expired *expiredError
		if o.ExpiresAt, err = parseExpiry(expires, time.Now()); errors.As(err, &expired) {
			r.Override.Override, r.Notes = o, append(r.Notes, "--expires "+formatTime(expired.at)+" is in the past, the override would have no effect: nothing was changed")
			return &r, nil
		}
		if err != nil {
			return nil, &usageError{fmt.Errorf("--expires: %w", err)}
		}
		if burst > 0 {
			o.Limit += " burst " + strconv.FormatInt(burst, 10)
		}
		before, err := findOverridden(ctx, c, &o)
		if err == nil {
			r.Override, err = c.SetOverride(ctx, &o)
		}
		if denied, ok := errors.AsType[*adminclient.StatusError](err); ok {
			denied.Detail = overrideIndex.ReplaceAllString(denied.Detail, "") // only one override was sent
			if o.LimitName == "" && strings.Contains(denied.Detail, `has no limit ""`) {
				denied.Detail += ": use --limit-name; headgate rules export shows the names"
			}
		}
		if err == nil {
			err = before.compare(&r)
		}
		return &r, err
	})
	flags := cmd.Flags()
	flags.Int64Var(&burst, "burst", 0, "burst of `N` requests (default: the rule's burst, scaled with the rate)")
	expiresFlag(flags, &expires, "expiry `TIME`: "+expiryForms+" (default: never)")
	flags.StringVar(&o.LimitName, "limit-name", "", "`NAME` of the limit, if the rule has several")
	flags.StringVar(&o.Reason, "reason", "", "`TEXT` for the audit log")
	return cmd
}

func (r *overrideReport) text() string {
	o := &r.Override
	if r.After == nil {
		return "warning: " + strings.Join(r.Notes, "\nwarning: ") + "\n"
	}
	return fmt.Sprintf("override %d: %s for %s; expires: %s\n  before  %s\n  after   %s\n", o.ID, qualifiedLimit(o.Rule, o.LimitName),
		subjectText(o.Subject), formatLocalExpiry(o.ExpiresAt, time.Local), r.Before.Text, r.After.Text) + notesText(r.Notes)
}

// defaultListed is the number of entries listed without --all. There may be a million overrides.
const defaultListed = 1000

// overrideList is the JSON of "override list".
type overrideList struct {
	Overrides []adminapi.StoredOverride `json:"overrides"`
	// More reports whether further overrides exist.
	More bool `json:"more"`
}

func newOverrideList(p *program) *cobra.Command {
	var rule, subject string
	var all bool
	cmd := p.serverCommand(&cobra.Command{
		Use:     "list --server ADDRESS",
		Short:   "List active overrides",
		Example: "  headgate override list --rule search-by-key --subject tenant=acme --server https://gate:8083",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (_ report, err error) {
		var attributes headgate.Attributes
		if subject != "" {
			if attributes, _, err = parseSubject(subject); err != nil { //nolint:contextcheck // it returns immediately
				return nil, &usageError{err}
			}
		}
		overrides, more, err := c.Overrides(ctx, rule, attributes, listLimit(all, defaultListed))
		return &overrideList{overrides, more}, err
	})
	cmd.Flags().StringVar(&rule, "rule", "", "list only overrides of this `RULE`")
	cmd.Flags().StringVar(&subject, "subject", "", "list only overrides of this `SUBJECT`, such as tenant=acme,user=ann")
	cmd.Flags().BoolVar(&all, "all", false, "list all entries (default: the first "+wording.Number(defaultListed)+")")
	return cmd
}

func (r *overrideList) text() string {
	if len(r.Overrides) == 0 {
		return "no overrides found\n"
	}
	rows := [][]string{{"ID", "RULE", "SUBJECT", "LIMIT", "EXPIRES", "CREATED BY", "REASON"}}
	for i := range r.Overrides {
		o := &r.Overrides[i]
		rows = append(rows, []string{
			number(o.ID), qualifiedLimit(o.Rule, o.LimitName), subjectText(o.Subject), o.Limit, formatExpiry(o.ExpiresAt), o.CreatedBy, o.Reason,
		})
	}
	return wording.Table("", rows...) + moreText(r.More)
}
