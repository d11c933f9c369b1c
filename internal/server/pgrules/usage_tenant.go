package pgrules

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// otherSubjects stands in a row of usage for all subjects of a tenant's rule that have none of their own on that day. What the
// tenant has used is then still complete, and so is what it is charged for.
const otherSubjects = "others"

// usageKey is what there is one row of usage for.
type usageKey = pgdb.KnownUsageRow

// usageRow is a row of usage that is to be added. Attributes are in JSON; "" if they are not known.
type usageRow struct {
	usageKey
	Attributes string `json:"attributes"`
	Units      int64  `json:"units"`
	Denied     int64  `json:"denied"`
}

// tenantDay is what the quota of metered subjects is for.
type tenantDay struct{ tenant, day string }

// ownersOf returns the tenants that have made rules of which there is usage, by rule. Rules of operators are left out.
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

// addTenantUsage adds usage of which some is of rules that tenants have made. Until the transaction ends no other node adds
// usage of these tenants, so that the number of their subjects is exact.
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

// knownUsage returns which rows of tenants' rules are there.
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

// foldUsage adds up what exceeds how many subjects tenants have left.
func foldUsage(rows []usageRow, owners map[string]string, known map[usageKey]bool, left map[tenantDay]int64) []usageRow {
	folded := make([]usageRow, 0, len(rows))
	others := map[usageKey]int{} // where they are in folded
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
		at, there := others[r.usageKey]
		if !there {
			text, _ := json.Marshal(map[string]string{"tenant": tenant}) // texts can always be written
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
