package pgrules

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// otherSubjects is the subject of the row that sums the usage of all subjects of a tenant's rule without a row of their own on that
// day. The usage that the tenant is billed for stays complete.
const otherSubjects = "others"

// usageKey is the unique key of a row of usage.
type usageKey = pgdb.KnownUsageRow

// usageRow is a row of usage to be added. Attributes are in JSON; "" if unknown.
type usageRow struct {
	usageKey
	Attributes string `json:"attributes"`
	Units      int64  `json:"units"`
	Denied     int64  `json:"denied"`
}

// tenantDay is the key of the quota of metered subjects.
type tenantDay struct{ tenant, day string }

// ownersOf returns the tenants that own the rules of usage rows, by rule. Rules of operators are left out.
func (db *DB) ownersOf(ctx context.Context, rows []usageRow) (map[string]string, error) {
	names := map[string]bool{}
	for i := range rows {
		names[rows[i].Rule] = true
	}
	found, err := db.query().OwnersOf(ctx, slices.Sorted(maps.Keys(names)))
	if err != nil {
		return nil, err
	}
	owners := make(map[string]string, len(found))
	for _, r := range found {
		owners[r.Name] = r.Owner
	}
	return owners, nil
}

// addTenantUsage adds usage that includes rules of tenants. It locks out other nodes that add usage of these tenants until the
// transaction ends, so that the number of their subjects is exact.
func (db *DB) addTenantUsage(ctx context.Context, q *pgdb.Queries, rows []usageRow, owners map[string]string) error {
	tenants := slices.Compact(slices.Sorted(maps.Values(owners)))
	if err := q.LockUsage(ctx, tenants); err != nil {
		return err
	}
	known, err := knownUsage(ctx, q, rows, owners)
	if err != nil {
		return err
	}
	days := map[string]bool{}
	for i := range rows {
		if owners[rows[i].Rule] != "" && !known[rows[i].usageKey] {
			days[rows[i].Day] = true
		}
	}
	left := map[tenantDay]int64{}
	if len(days) > 0 {
		for day := range days {
			for _, tenant := range tenants {
				left[tenantDay{tenant, day}] = int64(db.quotas.MeteredSubjects)
			}
		}
		counts, err := q.CountUsage(ctx, pgdb.CountUsageParams{Days: slices.Sorted(maps.Keys(days)), Tenants: tenants})
		if err != nil {
			return err
		}
		for _, c := range counts {
			left[tenantDay{c.Owner, c.Day}] -= c.Subjects
		}
	}
	return addUsage(ctx, q, foldUsage(rows, owners, known, left))
}

// knownUsage returns the keys of the rows of tenants' rules that are stored already.
func knownUsage(ctx context.Context, q *pgdb.Queries, rows []usageRow, owners map[string]string) (map[usageKey]bool, error) {
	text, err := json.Marshal(slices.DeleteFunc(slices.Clone(rows), func(r usageRow) bool { return owners[r.Rule] == "" }))
	if err != nil {
		return nil, err
	}
	found, err := q.KnownUsage(ctx, text)
	known := make(map[usageKey]bool, len(found))
	for _, key := range found {
		known[key] = true
	}
	return known, err
}

// foldUsage sums the usage of subjects above the number that their tenants have left.
func foldUsage(rows []usageRow, owners map[string]string, known map[usageKey]bool, left map[tenantDay]int64) []usageRow {
	folded := make([]usageRow, 0, len(rows))
	others := map[usageKey]int{} // indexes in folded
	for _, r := range rows {
		tenant := owners[r.Rule]
		if tenant == "" || known[r.usageKey] {
			folded = append(folded, r)
			continue
		}
		if of := (tenantDay{tenant, r.Day}); left[of] > 0 {
			left[of]--
			folded = append(folded, r)
			continue
		}
		r.Subject = otherSubjects
		at, exists := others[r.usageKey]
		if !exists {
			text, _ := json.Marshal(map[string]string{"tenant": tenant}) // strings can always be encoded
			others[r.usageKey], at = len(folded), len(folded)
			folded = append(folded, usageRow{usageKey: r.usageKey, Attributes: string(text)})
		}
		folded[at].Units += r.Units
		folded[at].Denied += r.Denied
	}
	return folded
}

func addUsage(ctx context.Context, q *pgdb.Queries, rows []usageRow) error {
	text, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	return q.AddUsage(ctx, text)
}
