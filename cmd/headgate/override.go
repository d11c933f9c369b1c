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
	cmd := &cobra.Command{Use: "override", Short: "Give subjects other limits than a rule has, on a server with PostgreSQL"}
	cmd.AddCommand(newOverrideSet(p), newOverrideList(p), newRemove(p, "override", adminapi.OverridesPath), newOverrideImport(p))
	return cmd
}

// overrideReport is the JSON of "override set".
type overrideReport struct {
	Override adminapi.StoredOverride `json:"override"`
	// Before is what the subject had, not counting its tier, and After what it has now; null if nothing was changed, because
	// the override has expired.
	Before *limitReport `json:"before"`
	After  *limitReport `json:"after"`
	Notes  []string     `json:"notes"`
}

func newOverrideSet(p *program) *cobra.Command {
	var o adminapi.Override
	var expires string
	var burst int64
	cmd := p.asking(&cobra.Command{
		Use:   "set RULE SUBJECT LIMIT --server ADDRESS",
		Short: "Give a subject another limit",
		Long: `Give a subject another limit than the rule has; if it has one already, that is replaced. What it has used stays used.

SUBJECT is what the rule counts by: tenant=acme, or tenant=acme,user=ann. An api_key is hashed here and never sent. A comma
within a value is written as \, .
LIMIT is like 5000/minute; a number alone keeps the rest of the rule's limit. Without --burst the burst grows or shrinks
with the rate: in the place of 1000/minute with a burst of 200, 5000/minute has one of 1000. A rule with several limits
takes one at a time, by --limit-name, and the others stay. What it was before and is afterwards is shown.`,
		Example: "  headgate override set search-by-key tenant=acme 5000/minute --expires 72h --reason launch --server https://gate:8083",
		Args:    cobra.ExactArgs(3),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (_ report, err error) {
		r := overrideReport{Notes: []string{}}
		o.Rule, o.Limit = args[0], args[2]
		subject, notes, err := readSubject(args[1]) //nolint:contextcheck // it is over at once
		if err != nil {
			return nil, &usageError{err}
		}
		o.Subject, r.Notes = subject, append(r.Notes, notes...)
		var over *expiredError
		if o.ExpiresAt, err = readExpiry(expires, time.Now()); errors.As(err, &over) {
			r.Override.Override, r.Notes = o, append(r.Notes, "it would have expired at "+instant(over.at)+" and have no effect: nothing is changed")
			return &r, nil
		}
		if err != nil {
			return nil, &usageError{fmt.Errorf("--expires %w", err)}
		}
		if burst > 0 {
			o.Limit += " burst " + strconv.FormatInt(burst, 10)
		}
		before, err := findOverridden(ctx, c, &o)
		if err == nil {
			r.Override, err = c.SetOverride(ctx, &o)
		}
		if denied, ok := errors.AsType[*adminclient.StatusError](err); ok {
			denied.Detail = wrongOverride.ReplaceAllString(denied.Detail, "") // there is but one
			if o.LimitName == "" && strings.Contains(denied.Detail, `has no limit ""`) {
				denied.Detail += ": give --limit-name, which headgate rules export shows"
			}
		}
		if err == nil {
			err = before.compare(&r)
		}
		return &r, err
	})
	flags := cmd.Flags()
	flags.Int64Var(&burst, "burst", 0, "`N` that may pass at once; without it the rule's burst, scaled with the rate")
	flags.StringVar(&expires, "expires", "", "`WHEN` it ends: 2026-12-01, 2026-12-01T18:00:00Z, 72h or 14d; without it never")
	flags.StringVar(&o.LimitName, "limit-name", "", "`NAME` of the limit, if the rule has several")
	flags.StringVar(&o.Reason, "reason", "", "`TEXT` for those who find it later")
	return cmd
}

func (r *overrideReport) text() string {
	o := &r.Override
	if r.After == nil {
		return "warning: " + strings.Join(r.Notes, "\nwarning: ") + "\n"
	}
	return fmt.Sprintf("override %d: %s for %s until %s\n  before  %s\n  after   %s\n", o.ID, limitOf(o.Rule, o.LimitName),
		subjectText(o.Subject), until(o.ExpiresAt), r.Before.Text, r.After.Text) + notesText(r.Notes)
}

// usualList is how many are listed unless all are wanted: there may be a million.
const usualList = 1000

// overrideList is the JSON of "override list".
type overrideList struct {
	Overrides []adminapi.StoredOverride `json:"overrides"`
	// More says that there are others.
	More bool `json:"more"`
}

func newOverrideList(p *program) *cobra.Command {
	var rule, subject string
	var all bool
	cmd := p.asking(&cobra.Command{
		Use:     "list --server ADDRESS",
		Short:   "Show overrides that have not ended",
		Example: "  headgate override list --rule search-by-key --subject tenant=acme --server https://gate:8083",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (_ report, err error) {
		var attributes headgate.Attributes
		if subject != "" {
			if attributes, _, err = readSubject(subject); err != nil { //nolint:contextcheck // it is over at once
				return nil, &usageError{err}
			}
		}
		overrides, more, err := c.Overrides(ctx, rule, attributes, mostOf(all, usualList))
		return &overrideList{overrides, more}, err
	})
	cmd.Flags().StringVar(&rule, "rule", "", "only those of this `RULE`")
	cmd.Flags().StringVar(&subject, "subject", "", "only those of this `SUBJECT`: tenant=acme,user=ann")
	cmd.Flags().BoolVar(&all, "all", false, "show more than "+wording.Number(usualList))
	return cmd
}

func (r *overrideList) text() string {
	if len(r.Overrides) == 0 {
		return "there are no such overrides\n"
	}
	rows := [][]string{{"ID", "RULE", "SUBJECT", "LIMIT", "UNTIL", "BY", "REASON"}}
	for i := range r.Overrides {
		o := &r.Overrides[i]
		rows = append(rows, []string{
			number(o.ID), limitOf(o.Rule, o.LimitName), subjectText(o.Subject), o.Limit, until(o.ExpiresAt), o.CreatedBy, o.Reason,
		})
	}
	return wording.Table("", rows...) + moreText(r.More)
}
