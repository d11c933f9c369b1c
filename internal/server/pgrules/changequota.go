package pgrules

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// bytesPerChange is how much of a rule's document counts as one change: history and audit keep three copies of it.
const bytesPerChange = 4 << 10

const day = 24 * time.Hour

// PaceError says that a tenant's editors have changed too much lately.
type PaceError struct {
	// RetryAfter is when the same change fits.
	RetryAfter time.Duration

	tenant          string
	changes, perDay int
}

func (e *PaceError) Error() string {
	return fmt.Sprintf("quota of tenant %s: %d more changes would exceed %d a day, all of which history and audit keep: wait, change "+
		"less often or fewer at once, or ask an operator of the servers to raise tenants.max_changes_per_day in their config",
		e.tenant, e.changes, e.perDay)
}

// spendChanges counts changes that a tenant's editors make in the transaction of q, and returns an error if they exceed the quota. What was
// counted drains at the pace of the quota, so that waiting a little is enough for a small change.
func (db *DB) spendChanges(ctx context.Context, q *pgdb.Queries, tenant string, changes int) error {
	perDay := db.quotas.ChangesPerDay
	switch {
	case tenant == "" || changes == 0:
		return nil
	case changes > perDay:
		return fmt.Errorf("%w: quota of tenant %s: these are %d changes at once, and the tenant may make at most %d a day: send fewer "+
			"at once, or ask an operator of the servers to raise tenants.max_changes_per_day in their config", ErrDenied, tenant, changes, perDay)
	}
	pending, err := q.SpendChanges(ctx, pgdb.SpendChangesParams{Tenant: tenant, Seconds: share(changes, perDay)})
	if err != nil {
		return err
	}
	return db.keepsPace(tenant, changes, pending)
}

// canChange returns an error if a tenant cannot make a single change now. It is called before work whose number of changes is known
// only afterwards.
func (db *DB) canChange(ctx context.Context, q *pgdb.Queries, tenant string) error {
	pending, err := q.SpendChanges(ctx, pgdb.SpendChangesParams{Tenant: tenant})
	if err != nil || db.quotas.ChangesPerDay == 0 {
		return err
	}
	return db.keepsPace(tenant, 1, pending+share(1, db.quotas.ChangesPerDay))
}

// share returns how many seconds of a day changes take.
func share(changes, perDay int) float64 { return day.Seconds() * float64(changes) / float64(perDay) }

// keepsPace returns an error if changes leave more seconds pending than a day has.
func (db *DB) keepsPace(tenant string, changes int, pending float64) error {
	wait := pending - day.Seconds()
	if wait <= 0 {
		return nil
	}
	seconds := time.Duration(math.Ceil(wait)) * time.Second
	return &PaceError{RetryAfter: seconds, tenant: tenant, changes: changes, perDay: db.quotas.ChangesPerDay}
}

// weight returns how many changes of the quota a plan takes.
func (p *plan) weight() int {
	n := 0
	for _, rows := range [][]pgdb.RateLimitRule{p.inserts, p.updates} {
		for i := range rows {
			n += 1 + len(orZero(rows[i].Document))/bytesPerChange
		}
	}
	return n
}
