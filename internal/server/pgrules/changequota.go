package pgrules

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// bytesPerChange is how many bytes of a rule's document count as one change, since history and audit keep three copies of it.
const bytesPerChange = 4 << 10

const day = 24 * time.Hour

// ChangeRateError means that a change exceeds the tenant's quota of changes per day.
type ChangeRateError struct {
	// RetryAfter is the time until the same change is within the quota.
	RetryAfter time.Duration

	tenant          string
	changes, perDay int
}

func (e *ChangeRateError) Error() string {
	return fmt.Sprintf("quota of tenant %s exceeded: %d more changes would exceed %d per day: wait, make fewer changes, or ask an "+
		"operator to raise tenants.max_changes_per_day in the server config", e.tenant, e.changes, e.perDay)
}

// spendChanges counts the changes of a tenant's editors in the transaction of q, and returns an error if they exceed the quota. The
// count drains at the rate of the quota, so that a small change has to wait only briefly.
func (db *DB) spendChanges(ctx context.Context, q *pgdb.Queries, tenant string, changes int) error {
	perDay := db.quotas.ChangesPerDay
	switch {
	case tenant == "" || changes == 0:
		return nil
	case changes > perDay:
		return fmt.Errorf("%w: quota of tenant %s exceeded: %d changes at once, at most %d per day: send fewer at once, or ask an "+
			"operator to raise tenants.max_changes_per_day in the server config", ErrRejected, tenant, changes, perDay)
	}
	pending, err := q.SpendChanges(ctx, pgdb.SpendChangesParams{Tenant: tenant, Seconds: secondsOf(changes, perDay)})
	if err != nil {
		return err
	}
	return db.checkChangeRate(tenant, changes, pending)
}

// canChange returns an error if a tenant cannot make a single change now. Use it before work whose number of changes is only known
// afterwards.
func (db *DB) canChange(ctx context.Context, q *pgdb.Queries, tenant string) error {
	pending, err := q.SpendChanges(ctx, pgdb.SpendChangesParams{Tenant: tenant})
	if err != nil || db.quotas.ChangesPerDay == 0 {
		return err
	}
	return db.checkChangeRate(tenant, 1, pending+secondsOf(1, db.quotas.ChangesPerDay))
}

// secondsOf returns the share of a day's quota that changes take, in seconds of the day.
func secondsOf(changes, perDay int) float64 {
	return day.Seconds() * float64(changes) / float64(perDay)
}

// checkChangeRate returns an error if more than a day of seconds is pending after the changes.
func (db *DB) checkChangeRate(tenant string, changes int, pending float64) error {
	wait := pending - day.Seconds()
	if wait <= 0 {
		return nil
	}
	seconds := time.Duration(math.Ceil(wait)) * time.Second
	return &ChangeRateError{RetryAfter: seconds, tenant: tenant, changes: changes, perDay: db.quotas.ChangesPerDay}
}

// weight returns how many changes a plan counts as.
func (p *plan) weight() int {
	n := 0
	for _, rows := range [][]pgdb.RateLimitRule{p.inserts, p.updates} {
		for i := range rows {
			n += 1 + len(orZero(rows[i].Document))/bytesPerChange
		}
	}
	return n
}
