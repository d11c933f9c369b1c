package pgrules

import (
	"cmp"
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// Quotas bound what editors who are bound to a tenant may store for it. Operators, who are bound to none, may store more.
type Quotas struct {
	// Rules is how many rules a tenant may have. Disabled ones count: a rule keeps its history and is never deleted.
	Rules int
	// Limits is how much the limits of its enabled rules may weigh together, as headgate.Rule.Weight has it. One request may
	// match all of them.
	Limits int
	// ConditionSteps is how many steps the conditions of its enabled rules may take together for one request.
	ConditionSteps int
	// Exceptions is how many overrides and exemptions its rules may have together.
	Exceptions int
	// MeteredSubjects is how many subjects of its metered rules have usage of their own on a day. That of the others is added
	// up in one row for each rule.
	MeteredSubjects int
	// ChangesPerDay is how many changes its editors may make a day, in one go or spread over it. History and audit keep each.
	ChangesPerDay int
}

// DefaultQuotas returns the quotas of a config that says nothing else.
func DefaultQuotas() Quotas {
	return Quotas{
		Rules: 100, Limits: 200, ConditionSteps: 600_000, Exceptions: 10_000, MeteredSubjects: 10_000, ChangesPerDay: 50_000,
	}
}

// SetQuotas replaces the default quotas. It must be called before the DB is used.
func (db *DB) SetQuotas(q Quotas) { db.quotas = q }

// quotaUse is how much of a tenant's quotas its rules take.
type quotaUse struct{ rules, limits, steps int }

// add counts a rule that is there, and what it says if it is enabled.
func (u *quotaUse) add(rule *headgate.Rule, enabled bool) {
	u.rules++
	if enabled {
		u.limits += rule.Weight()
		u.steps += rule.When.Steps
	}
}

// within returns an error if a change exceeds a quota. One that makes use no larger is always possible, also where a quota
// was lowered below it.
func (q *Quotas) within(tenant string, before, after quotaUse) error {
	return cmp.Or(
		withinQuota(tenant, "rules, disabled ones included", "max_rules", "reuse the name of a disabled rule",
			before.rules, after.rules, q.Rules),
		withinQuota(tenant, "limits (a limit counts as 1, a sliding_log as 8 or 16, a candidate and overdraw as much again)",
			"max_limits", "use fewer limits or disable rules", before.limits, after.limits, q.Limits),
		withinQuota(tenant, "steps of conditions", "max_condition_steps",
			"use match in place of when, simplify conditions or disable rules", before.steps, after.steps, q.ConditionSteps))
}

func withinQuota(tenant, what, key, instead string, before, after, most int) error {
	if after <= most || after <= before {
		return nil
	}
	return fmt.Errorf("%w: quota of tenant %s: the tenant has %d %s, would have %d, and may have at most %d: %s, or ask an "+
		"operator of the servers to raise tenants.%s in their config", ErrDenied, tenant, before, what, after, most, instead, key)
}

// changeExceptions runs a change of overrides or exemptions, which returns how many rows it has changed, and undoes it if it exceeds a
// quota of the tenant that who is bound to. The count is exact: all changes take the lock on the state, and no other is committed
// between the two counts.
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
		return withinQuota(who.Tenant, "overrides and exemptions", "max_exceptions", "remove some that are not needed",
			int(before), int(after), db.quotas.Exceptions)
	})
}
