package pgrules

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// purgeAfter is how long what was removed, or has expired, is still there for nodes that were away. Those that were away for longer
// read everything again. The audit is for ever.
const purgeAfter = 7 * 24 * time.Hour

// Purge removes what nobody needs any more, as of a time.
func (db *DB) Purge(ctx context.Context, now time.Time) error {
	before := now.Add(-purgeAfter)
	err := db.change(ctx, Who{Name: "headgate", Comment: "expired"}, func(q *pgdb.Queries) error {
		if err := q.EndOverrides(ctx, &before); err != nil {
			return err
		}
		return q.EndExemptions(ctx, &before)
	})
	if err != nil {
		return err
	}
	return db.change(ctx, Who{Name: "headgate"}, func(q *pgdb.Queries) error {
		if err := q.PurgeOn(ctx); err != nil {
			return err
		}
		if _, err := q.LockState(ctx); err != nil {
			return err
		}
		overrides, err := q.PurgeOverrides(ctx, &before)
		if err != nil {
			return err
		}
		exemptions, err := q.PurgeExemptions(ctx, &before)
		if err != nil {
			return err
		}
		for _, purge := range []func(context.Context, time.Time) error{q.PurgeChanges, q.PurgeNodes, q.PurgeTenantChanges} {
			if err := purge(ctx, before); err != nil {
				return err
			}
		}
		return q.SetPurged(ctx, max(overrides, exemptions))
	})
}
