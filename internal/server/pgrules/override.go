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

// Override is another limit for one subject. Its JSON is that of the admin API, as that of all types here that have tags.
type Override struct {
	// Rule is the rule's name, and LimitName that of the limit; "" if it has none.
	Rule      string              `json:"rule"`
	LimitName string              `json:"limitName,omitempty"`
	Subject   headgate.Attributes `json:"subject"`
	// Limit is as ruledoc.ParseLimit reads it.
	Limit     string     `json:"limit"`
	Reason    string     `json:"reason"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// StoredOverride is an override as the table has it.
type StoredOverride struct {
	ID int64 `json:"overrideId,omitzero"`
	Override
	CreatedBy string    `json:"createdBy,omitzero"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
}

// MaxOverrides is how many can be set at once.
const MaxOverrides = 10_000

// SetOverrides adds overrides, or changes those that are there, all or none; it is how many were not there already as they are. An
// error names the one that it is about by its place, which begins with 0.
func (db *DB) SetOverrides(ctx context.Context, who Who, overrides []Override) (changed int64, err error) {
	if len(overrides) > MaxOverrides {
		return 0, fmt.Errorf("%w: %d overrides at once: send at most %d", ErrDenied, len(overrides), MaxOverrides)
	}
	read := map[string]pgdb.RateLimitRule{}
	rows := make([]pgdb.RateLimitOverride, len(overrides))
	places := map[string]int{}
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
		if at, twice := places[key]; twice {
			return 0, fmt.Errorf("override %d: %w: it is there already, as number %d", i, ErrDenied, at)
		}
		places[key] = i
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

// subjectText is a subject as it is stored: its names are sorted, and of an API key there is only the hash.
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

// ruleOfOverride reads a rule, whose row may be among those that were read before.
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
	_, notALimit := limitOf(rule, o.LimitName, o.Limit)
	_, notAHash := headgate.ParseKeyHash(o.Subject["api_key"])
	if err := cmp.Or(notALimit, ruledoc.CheckSubject(rule, o.Subject), notAHash); err != nil {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return checkReason(o.Reason)
}

// maxReason is how many characters the reason of an override or exemption may have, as the tables say: each is kept in memory by all
// nodes, and in the audit for good.
const maxReason = 1000

func checkReason(reason string) error {
	if n := utf8.RuneCountInString(reason); n > maxReason {
		return fmt.Errorf("%w: reason has %d characters: write at most %d", ErrDenied, n, maxReason)
	}
	return nil
}

// Page is which part of a list is wanted: the first Most after one.
type Page struct {
	After int64
	Most  int32
}

// Which says which overrides or exemptions are wanted.
type Which struct {
	// Rule is a name or UUID; "" is all.
	Rule string
	// Tenant has made the rule, or is in the subject; "" is all.
	Tenant string
	// Subject is of overrides only; nil is all.
	Subject headgate.Attributes
}

// ruleID returns the id of a rule, nil if none is named.
func (db *DB) ruleID(ctx context.Context, name string) (*int64, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // none is none
	}
	row, err := db.rowOf(ctx, name)
	if err != nil {
		return nil, err
	}
	return &row.ID, nil
}

// Overrides are those in force, in the order in which they were first set.
func (db *DB) Overrides(ctx context.Context, which Which, page Page) ([]StoredOverride, error) {
	rule, err := db.ruleID(ctx, which.Rule)
	if err != nil {
		return nil, err
	}
	params := pgdb.ListOverridesParams{After: page.After, Most: page.Most, Rule: rule}
	if which.Subject != nil {
		text, err := subjectText(which.Subject)
		if err != nil {
			return nil, err
		}
		params.Subject = &text
	}
	rows, err := db.listOverrides(ctx, which.Tenant, params)
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

// listOverrides reads overrides of all tenants, or of one by its indexes: it must not cost more for those of others.
func (db *DB) listOverrides(ctx context.Context, tenant string, params pgdb.ListOverridesParams) ([]pgdb.ListOverridesRow, error) {
	if tenant == "" {
		return db.query().ListOverrides(ctx, params)
	}
	rows, err := db.query().ListTenantOverrides(ctx, pgdb.ListTenantOverridesParams{
		Tenant: tenant, After: params.After, Rule: params.Rule, Subject: params.Subject, Most: params.Most,
	})
	return convert(rows, func(r pgdb.ListTenantOverridesRow) pgdb.ListOverridesRow { return pgdb.ListOverridesRow(r) }), err
}

// Override is the one with this id.
func (db *DB) Override(ctx context.Context, id int64) (StoredOverride, error) {
	all, err := db.Overrides(ctx, Which{}, Page{After: id - 1, Most: 1})
	return only(all, err, "override", id, func(o *StoredOverride) int64 { return o.ID })
}

// RemoveOverride ends an override.
func (db *DB) RemoveOverride(ctx context.Context, who Who, id int64) error {
	return db.remove(ctx, who, "override", id, (*pgdb.Queries).RemoveOverride)
}

// only returns the first of a list, if it has the id that is wanted.
func only[T any](all []T, err error, kind string, id int64, idOf func(*T) int64) (one T, _ error) {
	if err == nil && (len(all) == 0 || idOf(&all[0]) != id) {
		err = ErrNotFound
	}
	if err != nil {
		return one, fmt.Errorf("%s %d: %w", kind, id, err)
	}
	return all[0], nil
}

// remove ends an override or an exemption.
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
