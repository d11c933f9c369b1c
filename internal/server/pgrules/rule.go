package pgrules

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
	"github.com/headgate/headgate/ruledoc"
)

// Rule is a stored rule.
type Rule struct {
	ID   int64  `json:"-"`
	UUID string `json:"ruleId"`
	// Flat has the columns. Parts of the rule that the columns cannot express are only in Document.
	ruledoc.Flat
	// Owner is the tenant that has made the rule; "" for operators.
	Owner string `json:"owner,omitempty"`
	// Document is the complete rule in JSON.
	Document json.RawMessage `json:"rule"`
	// Revision increases with every change.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Version is the version of the rules that a change has made. It is set in responses to changes only.
	Version int64 `json:"version,omitempty"`
}

// parsedRule is the parsed rule of a row, and the row's seq.
type parsedRule struct {
	seq  int64
	rule headgate.Rule
	err  error
}

// parse parses a row. It caches the result until the row changes.
func (db *DB) parse(row *pgdb.RateLimitRule) (headgate.Rule, error) {
	db.mu.Lock()
	known, ok := db.parsed[row.ID]
	db.mu.Unlock()
	if ok && known.seq == row.Seq {
		return known.rule, known.err
	}
	rule, err := parse(row)
	db.mu.Lock()
	db.parsed[row.ID] = parsedRule{row.Seq, rule, err}
	db.mu.Unlock()
	return rule, err
}

// parse parses a row: its document, which the columns must match, or the columns if there is no document.
func parse(row *pgdb.RateLimitRule) (headgate.Rule, error) {
	if row.Document == nil {
		flat := flatOf(row)
		return flat.Rule()
	}
	rule, err := ruledoc.ParseRule("rule "+row.Name, []byte(*row.Document))
	if err != nil {
		return rule, err
	}
	if rule.ID != row.Name {
		return rule, fmt.Errorf("rule %q: the document is of rule %q: write the same id", row.Name, rule.ID)
	}
	flat := ruledoc.FlatOf(rule)
	if want := columnsOf(&flat); !sameColumns(row, &want) {
		return rule, fmt.Errorf("rule %q: columns and document differ: change both, or set the document to NULL to "+
			"use the columns only", row.Name)
	}
	return rule, nil
}

// Definition is a rule to be stored.
type Definition struct {
	Rule headgate.Rule
	// Flat has the columns. Its algorithm has the name that the author used.
	Flat     ruledoc.Flat
	Document []byte
	// Enabled is whether the rule is in force.
	Enabled bool
	// Owner is the tenant that makes the rule; "" for operators. It never changes.
	Owner string
}

// Define parses a rule: a document as in rule files, in JSON or YAML, or the flat form, which has a name instead of an id. If the rule
// is invalid, the error is of type ruledoc.Errors.
func Define(data []byte) (*Definition, error) {
	if isFlat(data) {
		flat, err := ruledoc.ParseFlat(data)
		if err != nil {
			return nil, err
		}
		rule, err := flat.Rule()
		if err != nil {
			return nil, err
		}
		return define(rule, flat, flat.Enabled)
	}
	rule, err := ruledoc.ParseRule("rule", data)
	if err != nil {
		return nil, err
	}
	return DefinitionOf(rule)
}

// DefinitionOf returns the definition of a parsed rule, enabled and without owner.
func DefinitionOf(rule headgate.Rule) (*Definition, error) {
	return define(rule, ruledoc.FlatOf(rule), true)
}

func define(rule headgate.Rule, flat ruledoc.Flat, enabled bool) (*Definition, error) {
	document, err := ruledoc.EncodeRule(rule)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	if rule.Priority > math.MaxInt32 {
		return nil, fmt.Errorf("%w: priority %d: must be at most %d", ErrRejected, rule.Priority, math.MaxInt32)
	}
	return &Definition{Rule: rule, Flat: flat, Document: document, Enabled: enabled}, nil
}

func isFlat(data []byte) bool {
	var keys struct{ ID, Name json.RawMessage }
	return json.Unmarshal(data, &keys) == nil && keys.ID == nil && keys.Name != nil
}

// row returns the definition as a row.
func (d *Definition) row() pgdb.RateLimitRule {
	document := string(d.Document)
	row := columnsOf(&d.Flat)
	row.Enabled, row.Owner, row.Document = d.Enabled, d.Owner, &document
	return row
}

// definitionOf returns the definition of a row.
func (db *DB) definitionOf(row *pgdb.RateLimitRule) (*Definition, error) {
	rule, err := parse(row)
	if err != nil {
		return nil, err
	}
	d, err := define(rule, flatOf(row), row.Enabled)
	if err != nil {
		return nil, err
	}
	d.Owner = row.Owner
	if row.Document != nil {
		d.Document = []byte(*row.Document)
	}
	return d, nil
}

// columnsOf returns the columns of a flat rule. Empty values are NULL.
func columnsOf(f *ruledoc.Flat) pgdb.RateLimitRule {
	return pgdb.RateLimitRule{
		Name: f.Name, Scope: f.Scope, TenantID: orNull(f.TenantID), HttpMethod: orNull(f.HTTPMethod),
		PathPattern: orNull(f.PathPattern), Tier: orNull(f.Tier), Algorithm: orNull(f.Algorithm), MaxRequests: orNull(f.MaxRequests),
		WindowSeconds: orNull(f.WindowSeconds), BurstCapacity: orNull(f.BurstCapacity), Priority: int32(f.Priority),
	}
}

// flatOf returns the columns of a row as a flat rule.
func flatOf(row *pgdb.RateLimitRule) ruledoc.Flat {
	return ruledoc.Flat{
		Name: row.Name, Scope: row.Scope, TenantID: orZero(row.TenantID), HTTPMethod: orZero(row.HttpMethod),
		PathPattern: orZero(row.PathPattern), Tier: orZero(row.Tier), Algorithm: orZero(row.Algorithm),
		MaxRequests: orZero(row.MaxRequests), WindowSeconds: orZero(row.WindowSeconds), BurstCapacity: orZero(row.BurstCapacity),
		Priority: int(row.Priority), Enabled: row.Enabled,
	}
}

func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

// ruleOf returns the Rule of a row.
func ruleOf(row pgdb.RateLimitRule) Rule {
	r := Rule{
		ID: row.ID, UUID: row.RuleUuid, Flat: flatOf(&row), Owner: row.Owner, Revision: row.Seq,
		CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
	}
	if r.Algorithm == "" {
		r.Algorithm = algorithmOf(&row)
	}
	if row.Document != nil {
		r.Document = json.RawMessage(*row.Document)
	} else if rule, err := parse(&row); err == nil {
		r.Document, _ = ruledoc.EncodeRule(rule) // a rule made of columns can always be encoded
	}
	return r
}

// algorithmOf returns the algorithm to show for a row without one. Rules that have only concurrency limits have no columns of a limit.
func algorithmOf(row *pgdb.RateLimitRule) string {
	if row.Document != nil && row.MaxRequests == nil {
		if rule, err := parse(row); err == nil && rule.Counter == "" {
			return headgate.Concurrency.String()
		}
	}
	return headgate.TokenBucket.String()
}

// Filter selects rules. A nil field selects all.
type Filter = pgdb.ListRulesParams

// Rules returns a page of the rules that a filter selects, in the order of their creation.
func (db *DB) Rules(ctx context.Context, filter Filter, page Page) ([]Rule, error) {
	filter.After, filter.MaxRows = page.After, page.Limit
	rows, err := db.query().ListRules(ctx, filter)
	if err != nil {
		return nil, db.explain(err)
	}
	return convert(rows, ruleOf), nil
}

// Rule returns the rule with this name or UUID.
func (db *DB) Rule(ctx context.Context, name string) (Rule, error) {
	row, err := db.rowOf(ctx, name)
	if err != nil {
		return Rule{}, err
	}
	return ruleOf(row), nil
}

func (db *DB) rowOf(ctx context.Context, name string) (pgdb.RateLimitRule, error) {
	row, err := db.query().RuleByName(ctx, name)
	if err != nil {
		err = fmt.Errorf("rule %q: %w", name, db.explain(err))
	}
	return row, err
}
