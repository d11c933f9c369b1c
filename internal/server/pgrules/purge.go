package pgrules

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// purgeAfter is how long removed and expired rows are kept for nodes that were disconnected. Nodes that were disconnected for longer
// read everything again. The audit is kept permanently.
const purgeAfter = 7 * 24 * time.Hour

// Purge removes overrides and exemptions that expired more than purgeAfter before now, and deletes rows that were removed or last
// used before that.
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
		if err := q.EnablePurge(ctx); err != nil {
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
