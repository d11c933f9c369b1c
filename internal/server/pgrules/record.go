package pgrules

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// Version is a version of the rules. Changed is how many rules it has changed.
type Version struct {
	Number    int64     `json:"version"`
	Mode      string    `json:"mode"`
	Actor     string    `json:"actor"`
	Comment   string    `json:"comment"`
	CreatedAt time.Time `json:"createdAt"`
	Changed   int64     `json:"changed"`
}

// Version returns the version with this number.
func (db *DB) Version(ctx context.Context, number int64) (Version, error) {
	last, err := db.Versions(ctx, Page{After: number + 1, Limit: 1})
	return only(last, err, "version", number, func(v *Version) int64 { return v.Number })
}

// Versions returns a page of the versions, newest first: those before page.After, or the latest if it is 0.
func (db *DB) Versions(ctx context.Context, page Page) ([]Version, error) {
	rows, err := db.query().ListVersions(ctx, pgdb.ListVersionsParams{Before: before(page), MaxRows: page.Limit})
	return convert(rows, func(r pgdb.ListVersionsRow) Version { return Version(r) }), db.explain(err)
}

// before returns the exclusive upper bound of a page of a list with the newest first.
func before(page Page) int64 {
	if page.After <= 0 {
		return math.MaxInt64
	}
	return page.After
}

// CurrentState returns the current version and mode of the rules, and the revision of everything, overrides and exemptions included.
func (db *DB) CurrentState(ctx context.Context) (version, revision int64, mode headgate.Mode, err error) {
	state, err := db.query().State(ctx)
	return state.Version, state.Seq, ModeOf(state.Mode), db.explain(err)
}

// RulesAt returns the rules of a version.
func (db *DB) RulesAt(ctx context.Context, version int64) ([]Rule, error) {
	_, rows, err := db.rowsAt(ctx, version)
	if err != nil {
		return nil, err
	}
	return convert(rows, ruleOf), nil
}

// rowsAt returns the mode of a version, and the rows of its rules.
func (db *DB) rowsAt(ctx context.Context, version int64) (headgate.Mode, []pgdb.RateLimitRule, error) {
	then, err := db.Version(ctx, version)
	if err != nil {
		return 0, nil, err
	}
	found, err := db.query().RulesAt(ctx, version)
	if err != nil {
		return 0, nil, db.explain(err)
	}
	rows := make([]pgdb.RateLimitRule, len(found))
	for i, r := range found {
		if err := json.Unmarshal(r.Rule, &rows[i]); err != nil {
			return 0, nil, fmt.Errorf("version %d: rule %d: %w", version, r.RuleID, err)
		}
	}
	return ModeOf(then.Mode), rows, nil
}

// AuditEntry is one change of one object. Object is rule, override, exemption, mode, token or counter. Action is insert, update,
// delete, enable or disable. Rule is the name of the rule that the object belongs to, "" if none. Version is the version of the rules
// that the change has made, 0 if none.
type AuditEntry struct {
	ID        int64           `json:"id"`
	Object    string          `json:"object"`
	Action    string          `json:"action"`
	Rule      string          `json:"rule,omitempty"`
	Old       json.RawMessage `json:"old,omitempty"`
	New       json.RawMessage `json:"new,omitempty"`
	Version   int64           `json:"version,omitempty"`
	Actor     string          `json:"actor"`
	CreatedAt time.Time       `json:"createdAt"`
}

// Audit returns a page of the changes of a rule, its overrides and its exemptions, newest first, or of all changes if rule is "". If
// tenant is not "", it returns only changes of that tenant.
func (db *DB) Audit(ctx context.Context, rule, tenant string, page Page) ([]AuditEntry, error) {
	id, err := db.ruleID(ctx, rule)
	if err != nil {
		return nil, err
	}
	params := pgdb.ListAuditParams{Before: before(page), MaxRows: page.Limit, Rule: id, Tenant: orNull(tenant)}
	rows, err := db.query().ListAudit(ctx, params)
	return convert(rows, func(r pgdb.ListAuditRow) AuditEntry { return AuditEntry(r) }), db.explain(err)
}

// Record adds the change of a counter to the audit.
func (db *DB) Record(ctx context.Context, who Who, rule, tenant string, details any) error {
	row, err := db.rowOf(ctx, rule)
	if err != nil {
		return err
	}
	text, err := json.Marshal(details)
	if err != nil {
		return err
	}
	return db.change(ctx, who, func(q *pgdb.Queries) error {
		if err := db.spendChanges(ctx, q, who.Tenant, 1+len(text)/bytesPerChange); err != nil {
			return err
		}
		return q.Record(ctx, pgdb.RecordParams{RuleID: &row.ID, NewRow: text, Tenant: tenant, Actor: who.Name})
	})
}

// Node is the last report of a node, and its age. Problem is why the node does not run the current state; "" if it does.
type Node struct {
	Name       string    `json:"node"`
	Version    int64     `json:"version"`
	Seq        int64     `json:"revision"`
	Problem    string    `json:"problem"`
	StartedAt  time.Time `json:"startedAt"`
	AgeSeconds float64   `json:"ageSeconds"`
}

// Nodes returns the last reports of all nodes, by name.
func (db *DB) Nodes(ctx context.Context) ([]Node, error) {
	rows, err := db.query().ListNodes(ctx)
	return convert(rows, func(r pgdb.ListNodesRow) Node { return Node(r) }), db.explain(err)
}

// Token is the stored part of a token, without the secret. Subject is the subject whose usage a token with the role self shows:
// user=NAME or api_key=HASH.
type Token struct {
	ID        int64      `json:"tokenId,omitzero"`
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Tenant    string     `json:"tenant,omitempty"`
	Subject   string     `json:"subject,omitempty"`
	CreatedBy string     `json:"createdBy,omitempty"`
	CreatedAt time.Time  `json:"createdAt,omitzero"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
}

// AddToken stores a token with this SHA-256.
func (db *DB) AddToken(ctx context.Context, who Who, t Token, sum [32]byte) (id int64, err error) {
	err = db.change(ctx, who, func(q *pgdb.Queries) error {
		id, err = q.AddToken(ctx, pgdb.AddTokenParams{
			Name: t.Name, Sum: sum[:], Role: t.Role, Tenant: t.Tenant, Subject: t.Subject, CreatedBy: who.Name, ExpiresAt: t.ExpiresAt,
		})
		return err
	})
	return id, err
}

// TokenOf returns the token with this SHA-256. It returns ErrNotFound if the token does not exist, has expired or was revoked.
func (db *DB) TokenOf(ctx context.Context, sum [32]byte) (Token, error) {
	row, err := db.query().TokenBySum(ctx, sum[:])
	return Token(row), db.explain(err)
}

// Tokens returns a page of all tokens, including expired and revoked tokens, in the order of their creation.
func (db *DB) Tokens(ctx context.Context, page Page) ([]Token, error) {
	rows, err := db.query().ListTokens(ctx, pgdb.ListTokensParams{After: page.After, MaxRows: page.Limit})
	return convert(rows, func(r pgdb.ListTokensRow) Token { return Token(r) }), db.explain(err)
}

// RevokeToken revokes a token.
func (db *DB) RevokeToken(ctx context.Context, who Who, id int64) error {
	return db.change(ctx, who, func(q *pgdb.Queries) error {
		if n, err := q.RevokeToken(ctx, id); err != nil || n > 0 {
			return err
		}
		return fmt.Errorf("token %d: %w", id, ErrNotFound)
	})
}
