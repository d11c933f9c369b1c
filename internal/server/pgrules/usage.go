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

// AddUsage adds to what subjects have used, all rows or none. Its error is meter.ErrNotWritten if it was certainly none. Of
// rules that a tenant has made, what exceeds its quota of metered subjects goes to one row for all others.
func (db *DB) AddUsage(ctx context.Context, rows []meter.Row) error {
	written := make([]usageRow, len(rows))
	for i := range rows {
		r := &rows[i]
		written[i] = usageRow{usageKey{Day: r.Day, Rule: r.Rule, Subject: r.Subject.String()}, "", r.Units, r.Denied}
		if r.Attributes != nil {
			text, err := json.Marshal(r.Attributes) // its names are sorted
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
	var said *pgconn.PgError
	var unreachable *pgconn.ConnectError
	// Of what ends a connection nobody knows whether it came before the commit.
	if err != nil && (!committing || errors.As(err, &said) && said.Severity == "ERROR" || errors.As(err, &unreachable) || pgconn.SafeToRetry(err)) {
		return fmt.Errorf("%w: %w", meter.ErrNotWritten, db.explain(err))
	}
	return db.explain(err)
}

// Usage is what a subject has used of a rule on a day.
type Usage struct {
	ID   int64  `json:"-"`
	Day  string `json:"day"`
	Rule string `json:"rule"`
	// Subject is a hash, and Attributes what it was made of; nil where no node has told.
	Subject    string              `json:"-"`
	Attributes headgate.Attributes `json:"subject,omitempty"`
	Units      int64               `json:"units"`
	Denied     int64               `json:"denied"`
}

// UsageFilter says which usage is wanted: from the first day to the last, 2026-03-06; of a rule, or of all if it is ""; of a subject, or
// of all if it is nil.
type UsageFilter struct {
	First, Last, Rule string
	Subject           headgate.Attributes
}

// Usage is what was used, a row for each day, rule and subject.
func (db *DB) Usage(ctx context.Context, f UsageFilter, page Page) ([]Usage, error) {
	params := pgdb.ListUsageParams{First: f.First, Last: f.Last, Rule: orNull(f.Rule), After: page.After, Most: page.Most}
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
