package pgrules

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
	"github.com/headgate/headgate/ruledoc"
)

// Override replaces a limit for one subject. Its JSON is that of the admin API, like that of all types of this package with tags.
type Override struct {
	// Rule is the rule's name, and LimitName the name of the limit; "" if the limit has none.
	Rule      string              `json:"rule"`
	LimitName string              `json:"limitName,omitempty"`
	Subject   headgate.Attributes `json:"subject"`
	// Limit has the syntax of ruledoc.ParseLimit.
	Limit     string     `json:"limit"`
	Reason    string     `json:"reason"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// StoredOverride is an override in the table.
type StoredOverride struct {
	ID int64 `json:"overrideId,omitzero"`
	Override
	CreatedBy string    `json:"createdBy,omitzero"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
}

// MaxOverrides is how many overrides can be set at once.
const MaxOverrides = 10_000

// SetOverrides adds or changes overrides, all or none, and returns how many of them were new or have changed. An error names the
// invalid override by its index.
func (db *DB) SetOverrides(ctx context.Context, who Who, overrides []Override) (changed int64, err error) {
	if len(overrides) > MaxOverrides {
		return 0, fmt.Errorf("%w: %d overrides: send at most %d at once", ErrRejected, len(overrides), MaxOverrides)
	}
	read := map[string]pgdb.RateLimitRule{}
	rows := make([]pgdb.RateLimitOverride, len(overrides))
	indexes := map[string]int{}
	for i := range overrides {
		o := &overrides[i]
		id, rule, err := db.ruleOfOverride(ctx, read, o.Rule)
		if err == nil {
			err = checkOverride(&rule, o)
		}
		if err != nil {
			return 0, fmt.Errorf("override %d: %w", i, err)
		}
		subject, err := subjectText(o.Subject)
		if err != nil {
			return 0, err
		}
		key := o.Rule + "\x00" + o.LimitName + "\x00" + subject
		if at, duplicate := indexes[key]; duplicate {
			return 0, fmt.Errorf("override %d: %w: duplicate of override %d", i, ErrRejected, at)
		}
		indexes[key] = i
		rows[i] = pgdb.RateLimitOverride{
			RuleID: id, LimitName: o.LimitName, Subject: subject, LimitText: o.Limit, Reason: o.Reason, ExpiresAt: o.ExpiresAt,
			CreatedBy: who.Name,
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return 0, err
	}
	err = db.changeExceptions(ctx, who, func(q *pgdb.Queries) (int64, error) {
		changed, err = q.MergeOverrides(ctx, text)
		return changed, err
	})
	return changed, err
}

// subjectText returns a subject as it is stored: with sorted names, and an API key as its hash.
func subjectText(subject headgate.Attributes) (string, error) {
	subject = maps.Clone(subject)
	for name, value := range subject {
		if headgate.IsKeyAttribute(name) {
			subject[name] = headgate.EnsureKeyHash(value)
		}
	}
	text, err := json.Marshal(subject)
	return string(text), err
}

// ruleOfOverride returns a rule by its name. read caches the rows.
func (db *DB) ruleOfOverride(ctx context.Context, read map[string]pgdb.RateLimitRule, name string) (int64, headgate.Rule, error) {
	row, known := read[name]
	if !known {
		var err error
		if row, err = db.rowOf(ctx, name); err != nil {
			return 0, headgate.Rule{}, err
		}
		read[name] = row
	}
	rule, err := db.parse(&row)
	return row.ID, rule, err
}

func checkOverride(rule *headgate.Rule, o *Override) error {
	var notALimit error
	if rule.Counter == "" { // otherwise CheckSubject reports it
		_, notALimit = limitOf(rule, o.LimitName, o.Limit)
	}
	_, notAHash := headgate.ParseKeyHash(o.Subject["api_key"])
	if err := cmp.Or(notALimit, ruledoc.CheckSubject(rule, o.Subject), notAHash); err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return checkReason(o.Reason)
}

// maxReason is how many characters the reason of an override or exemption may have, as in the tables. All nodes keep each reason in
// memory, and the audit keeps it permanently.
const maxReason = 1000

func checkReason(reason string) error {
	if n := utf8.RuneCountInString(reason); n > maxReason {
		return fmt.Errorf("%w: reason: %d characters: write at most %d", ErrRejected, n, maxReason)
	}
	return nil
}

// Page selects a part of a list: up to Limit items after the item with id After.
type Page struct {
	After int64
	Limit int32
}

// ExceptionFilter selects overrides or exemptions.
type ExceptionFilter struct {
	// Rule is the name or UUID of a rule; "" selects all.
	Rule string
	// Tenant is the owner of the rule, or the tenant in the subject; "" selects all.
	Tenant string
	// Subject applies to overrides only; nil selects all.
	Subject headgate.Attributes
}

// ruleID returns the id of a rule, or nil if name is "".
func (db *DB) ruleID(ctx context.Context, name string) (*int64, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // nil selects all rules
	}
	row, err := db.rowOf(ctx, name)
	if err != nil {
		return nil, err
	}
	return &row.ID, nil
}

// Overrides returns a page of the overrides in force, in the order of their creation.
func (db *DB) Overrides(ctx context.Context, filter ExceptionFilter, page Page) ([]StoredOverride, error) {
	rule, err := db.ruleID(ctx, filter.Rule)
	if err != nil {
		return nil, err
	}
	params := pgdb.ListOverridesParams{After: page.After, MaxRows: page.Limit, Rule: rule}
	if filter.Subject != nil {
		text, err := subjectText(filter.Subject)
		if err != nil {
			return nil, err
		}
		params.Subject = &text
	}
	rows, err := db.listOverrides(ctx, filter.Tenant, params)
	if err != nil {
		return nil, db.explain(err)
	}
	all := make([]StoredOverride, len(rows))
	for i := range rows {
		r := &rows[i]
		o := Override{Rule: r.Rule, LimitName: r.LimitName, Limit: r.LimitText, Reason: r.Reason, ExpiresAt: r.ExpiresAt}
		all[i] = StoredOverride{r.ID, o, r.CreatedBy, r.CreatedAt, r.UpdatedAt}
		if err := json.Unmarshal([]byte(r.Subject), &all[i].Subject); err != nil {
			return nil, fmt.Errorf("override %d: %w", r.ID, err)
		}
	}
	return all, nil
}

// listOverrides reads the overrides of all tenants, or those of one tenant by index, so that the overrides of others add no cost.
func (db *DB) listOverrides(ctx context.Context, tenant string, params pgdb.ListOverridesParams) ([]pgdb.ListOverridesRow, error) {
	if tenant == "" {
		return db.query().ListOverrides(ctx, params)
	}
	rows, err := db.query().ListTenantOverrides(ctx, pgdb.ListTenantOverridesParams{
		Tenant: tenant, After: params.After, Rule: params.Rule, Subject: params.Subject, MaxRows: params.MaxRows,
	})
	return convert(rows, func(r pgdb.ListTenantOverridesRow) pgdb.ListOverridesRow { return pgdb.ListOverridesRow(r) }), err
}

// Override returns the override with this id.
func (db *DB) Override(ctx context.Context, id int64) (StoredOverride, error) {
	all, err := db.Overrides(ctx, ExceptionFilter{}, Page{After: id - 1, Limit: 1})
	return only(all, err, "override", id, func(o *StoredOverride) int64 { return o.ID })
}

// RemoveOverride removes an override.
func (db *DB) RemoveOverride(ctx context.Context, who Who, id int64) error {
	return db.remove(ctx, who, "override", id, (*pgdb.Queries).RemoveOverride)
}

// only returns the first item of a list, or ErrNotFound if it does not have this id.
func only[T any](all []T, err error, kind string, id int64, idOf func(*T) int64) (one T, _ error) {
	if err == nil && (len(all) == 0 || idOf(&all[0]) != id) {
		err = ErrNotFound
	}
	if err != nil {
		return one, fmt.Errorf("%s %d: %w", kind, id, err)
	}
	return all[0], nil
}

// remove removes an override or an exemption.
func (db *DB) remove(
	ctx context.Context, who Who, kind string, id int64, remove func(*pgdb.Queries, context.Context, int64) (int64, error),
) error {
	err := db.changeExceptions(ctx, who, func(q *pgdb.Queries) (int64, error) {
		_, err := remove(q, ctx, id)
		return 1, err
	})
	if err != nil {
		return fmt.Errorf("%s %d: %w", kind, id, err)
	}
	return nil
}
