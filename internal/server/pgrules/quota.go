package pgrules

import (
	"cmp"
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// Quotas limit what the editors of a tenant may store for it. They do not apply to operators, who are bound to no tenant.
type Quotas struct {
	// Rules is how many rules a tenant may have. Disabled rules count, since a rule keeps its history and is never deleted.
	Rules int
	// Limits is the maximum total weight of its enabled rules, as returned by headgate.Rule.Weight. One request may match all
	// of them.
	Limits int
	// ConditionSteps is the maximum total number of steps of the conditions of its enabled rules, for one request.
	ConditionSteps int
	// Exceptions is the maximum total number of overrides and exemptions of its rules.
	Exceptions int
	// MeteredSubjects is how many subjects of its metered rules have a row of usage of their own per day. The usage of other
	// subjects is summed in one row per rule.
	MeteredSubjects int
	// ChangesPerDay is how many changes its editors may make per day, at once or spread over the day. History and audit keep
	// all of them.
	ChangesPerDay int
}

// DefaultQuotas returns the default quotas.
func DefaultQuotas() Quotas {
	return Quotas{
		Rules: 100, Limits: 200, ConditionSteps: 600_000, Exceptions: 10_000, MeteredSubjects: 10_000, ChangesPerDay: 50_000,
	}
}

// SetQuotas sets the quotas. It must be called before the DB is used.
func (db *DB) SetQuotas(q Quotas) { db.quotas = q }

// quotaUse is the use of a tenant's quotas by its rules.
type quotaUse struct{ rules, limits, steps int }

// add counts a rule, and its limits and condition if it is enabled.
func (u *quotaUse) add(rule *headgate.Rule, enabled bool) {
	u.rules++
	if enabled {
		u.limits += rule.Weight()
		u.steps += rule.When.Steps
	}
}

// within returns an error if a change exceeds a quota. A change that does not increase the use is always allowed, even if the
// quota was lowered below the current use.
func (q *Quotas) within(tenant string, before, after quotaUse) error {
	return cmp.Or(
		withinQuota(tenant, "rules, including disabled rules", "max_rules", "reuse the name of a disabled rule",
			before.rules, after.rules, q.Rules),
		withinQuota(tenant, "limits (a limit counts as 1, a sliding_log as 8 or 16; a candidate and overdraw count as much again)",
			"max_limits", "use fewer limits or disable rules", before.limits, after.limits, q.Limits),
		withinQuota(tenant, "condition steps", "max_condition_steps",
			"use match instead of when, simplify conditions or disable rules", before.steps, after.steps, q.ConditionSteps))
}

// withinQuota returns an error if a use increases above a limit. key is the config key of the quota.
func withinQuota(tenant, what, key, remedy string, before, after, limit int) error {
	if after <= limit || after <= before {
		return nil
	}
	return fmt.Errorf("%w: quota of tenant %s exceeded: it has %d %s, would have %d, and may have at most %d: %s, or ask an "+
		"operator to raise tenants.%s in the server config", ErrRejected, tenant, before, what, after, limit, remedy, key)
}

// changeExceptions runs a change of overrides or exemptions, which returns how many rows it has changed. It rolls the change back if it
// exceeds a quota of the tenant that who is bound to. The count is exact: all changes lock the state, so that no other change is
// committed between the two counts.
func (db *DB) changeExceptions(ctx context.Context, who Who, do func(q *pgdb.Queries) (changed int64, err error)) error {
	return db.change(ctx, who, func(q *pgdb.Queries) error {
		if who.Tenant == "" {
			_, err := do(q)
			return err
		}
		if _, err := q.LockState(ctx); err != nil {
			return err
		}
		if err := db.canChange(ctx, q, who.Tenant); err != nil {
			return err
		}
		before, err := q.CountExceptions(ctx, who.Tenant)
		if err != nil {
			return err
		}
		changed, err := do(q)
		if err != nil {
			return err
		}
		if err := db.spendChanges(ctx, q, who.Tenant, int(changed)); err != nil {
			return err
		}
		after, err := q.CountExceptions(ctx, who.Tenant)
		if err != nil {
			return err
		}
		return withinQuota(who.Tenant, "overrides and exemptions", "max_exceptions", "remove unneeded ones",
			int(before), int(after), db.quotas.Exceptions)
	})
}
