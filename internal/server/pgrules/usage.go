package pgrules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/meter"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// AddUsage adds usage, all rows or none. Its error is meter.ErrNotWritten if certainly no row was written. For rules that a tenant
// has made, usage by subjects above its quota of metered subjects is summed in one row for all other subjects.
func (db *DB) AddUsage(ctx context.Context, rows []meter.Row) error {
	written := make([]usageRow, len(rows))
	for i := range rows {
		r := &rows[i]
		written[i] = usageRow{usageKey{Day: r.Day, Rule: r.Rule, Subject: r.Subject.String()}, "", r.Units, r.Denied}
		if r.Attributes != nil {
			text, err := json.Marshal(r.Attributes) // names are sorted
			if err != nil {
				return err
			}
			written[i].Attributes = string(text)
		}
	}
	owners, err := db.ownersOf(ctx, written)
	if err != nil {
		return fmt.Errorf("%w: %w", meter.ErrNotWritten, db.explain(err))
	}
	committing := true
	if len(owners) == 0 {
		err = addUsage(ctx, db.query(), written)
	} else {
		committing = false
		err = pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
			err := db.addTenantUsage(ctx, pgdb.New(tx), written, owners)
			committing = err == nil
			return err
		})
	}
	var pgErr *pgconn.PgError
	var unreachable *pgconn.ConnectError
	// After an error that ends the connection, it is unknown whether the commit was done.
	if err != nil && (!committing || errors.As(err, &pgErr) && pgErr.Severity == "ERROR" || errors.As(err, &unreachable) || pgconn.SafeToRetry(err)) {
		return fmt.Errorf("%w: %w", meter.ErrNotWritten, db.explain(err))
	}
	return db.explain(err)
}

// Usage is the usage of a rule by a subject on one day.
type Usage struct {
	ID   int64  `json:"-"`
	Day  string `json:"day"`
	Rule string `json:"rule"`
	// Subject is the hash of Attributes, which are nil if no node has reported them.
	Subject    string              `json:"-"`
	Attributes headgate.Attributes `json:"subject,omitempty"`
	Units      int64               `json:"units"`
	Denied     int64               `json:"denied"`
}

// UsageFilter selects usage: from the first to the last day, such as 2026-03-06, of a rule, or of all rules if it is "", and of a
// subject, or of all subjects if it is nil.
type UsageFilter struct {
	First, Last, Rule string
	Subject           headgate.Attributes
}

// Usage returns a page of usage, a row for each day, rule and subject.
func (db *DB) Usage(ctx context.Context, f UsageFilter, page Page) ([]Usage, error) {
	params := pgdb.ListUsageParams{First: f.First, Last: f.Last, Rule: orNull(f.Rule), After: page.After, MaxRows: page.Limit}
	if f.Subject != nil {
		text, err := json.Marshal(f.Subject)
		if err != nil {
			return nil, err
		}
		params.Attributes = orNull(string(text))
	}
	rows, err := db.query().ListUsage(ctx, params)
	if err != nil {
		return nil, db.explain(err)
	}
	all := make([]Usage, len(rows))
	for i := range rows {
		r := &rows[i]
		all[i] = Usage{ID: r.ID, Day: r.Day, Rule: r.Rule, Subject: r.Subject, Units: r.Units, Denied: r.Denied}
		if r.Attributes != "" {
			if err := json.Unmarshal([]byte(r.Attributes), &all[i].Attributes); err != nil {
				return nil, fmt.Errorf("usage of %s: %w", r.Subject, err)
			}
		}
	}
	return all, nil
}
