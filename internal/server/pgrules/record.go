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

// Version is one of the rules: what they were from then on, until the next.
type Version struct {
	Number         int64
	Mode           headgate.Mode
	Actor, Comment string
	CreatedAt      time.Time
	// Changed is how many rules it has changed.
	Changed int64
}

// Version is the one with this number.
func (db *DB) Version(ctx context.Context, number int64) (Version, error) {
	last, err := db.Versions(ctx, Page{After: number + 1, Most: 1})
	if err == nil && (len(last) == 0 || last[0].Number != number) {
		err = fmt.Errorf("version %d: %w", number, ErrNotFound)
	}
	if err != nil {
		return Version{}, err
	}
	return last[0], nil
}

// Versions are the last ones, newest first; those before one, if page.After says so.
func (db *DB) Versions(ctx context.Context, page Page) ([]Version, error) {
	rows, err := db.query().ListVersions(ctx, pgdb.ListVersionsParams{Before: before(page), Most: page.Most})
	if err != nil {
		return nil, db.explain(err)
	}
	all := make([]Version, len(rows))
	for i, r := range rows {
		all[i] = Version{r.Version, modeOf(r.Mode), r.Actor, r.Comment, r.CreatedAt, r.Rules}
	}
	return all, nil
}

// before is where a list begins that goes backwards.
func before(page Page) int64 {
	if page.After <= 0 {
		return math.MaxInt64
	}
	return page.After
}

// Present is the version of the rules, and the revision of everything.
func (db *DB) Present(ctx context.Context) (version, revision int64, mode headgate.Mode, err error) {
	state, err := db.query().State(ctx)
	return state.Version, state.Seq, modeOf(state.Mode), db.explain(err)
}

// RulesAt are those in force in a version.
func (db *DB) RulesAt(ctx context.Context, version int64) ([]Rule, error) {
	if _, err := db.query().VersionByNumber(ctx, version); err != nil {
		return nil, fmt.Errorf("version %d: %w", version, db.explain(err))
	}
	rows, err := db.query().RulesAt(ctx, version)
	if err != nil {
		return nil, db.explain(err)
	}
	all := make([]Rule, len(rows))
	for i, r := range rows {
		var row pgdb.RateLimitRule
		if err := json.Unmarshal(r.Rule, &row); err != nil {
			return nil, fmt.Errorf("version %d: rule %d: %w", version, r.RuleID, err)
		}
		all[i] = ruleOf(&row)
	}
	return all, nil
}

// AuditEntry is one change of one thing.
type AuditEntry struct {
	ID int64
	// Object is rule, override, exemption, mode, token or counter; Action insert, update, delete, enable or disable.
	Object, Action string
	// Rule is the name of the rule that it is about; "" if none.
	Rule     string
	Old, New json.RawMessage
	// Version is the one that it has made of the rules; 0 if none.
	Version   int64
	Actor     string
	CreatedAt time.Time
}

// Audit is the last changes, newest first; of a rule and what belongs to it, or of all if it is "". A tenant sees its own.
func (db *DB) Audit(ctx context.Context, rule, tenant string, page Page) ([]AuditEntry, error) {
	id, err := (&Which{Rule: rule}).rule(ctx, db)
	if err != nil {
		return nil, err
	}
	params := pgdb.ListAuditParams{Before: before(page), Most: page.Most, Rule: id, Tenant: orNull(tenant)}
	rows, err := db.query().ListAudit(ctx, params)
	if err != nil {
		return nil, db.explain(err)
	}
	all := make([]AuditEntry, len(rows))
	for i := range rows {
		r := &rows[i]
		all[i] = AuditEntry{
			ID: r.ID, Object: r.Object, Action: r.Action, Rule: r.Rule, Old: r.OldRow, New: r.NewRow, Actor: r.Actor, CreatedAt: r.CreatedAt,
		}
		if r.Version != nil {
			all[i].Version = *r.Version
		}
	}
	return all, nil
}

// Record notes that somebody has changed a counter.
func (db *DB) Record(ctx context.Context, who Who, rule, tenant string, what any) error {
	row, err := db.rowOf(ctx, rule)
	if err != nil {
		return err
	}
	text, err := json.Marshal(what)
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

// Node is what a node says of itself.
type Node struct {
	Name         string
	Version, Seq int64
	// Problem is why it does not run what is here; "" if it does.
	Problem   string
	StartedAt time.Time
	// Age is how long ago it has said so.
	Age time.Duration
}

// Nodes are all that have said something, by name.
func (db *DB) Nodes(ctx context.Context) ([]Node, error) {
	rows, err := db.query().ListNodes(ctx)
	if err != nil {
		return nil, db.explain(err)
	}
	all := make([]Node, len(rows))
	for i := range rows {
		r := &rows[i]
		age := time.Duration(r.Age * float64(time.Second))
		all[i] = Node{r.Node, r.Version, r.Seq, r.Problem, r.StartedAt, age}
	}
	return all, nil
}

// Token is what is known of a token, which is not the token itself.
type Token struct {
	ID                 int64
	Name, Role, Tenant string
	// Subject is whose usage a token with the role self shows: user=NAME or api_key=HASH.
	Subject            string
	CreatedBy          string
	CreatedAt          time.Time
	Expires, RevokedAt *time.Time
}

// AddToken lets in whoever has the token with this SHA-256.
func (db *DB) AddToken(ctx context.Context, who Who, t Token, sum [32]byte) (id int64, err error) {
	err = db.change(ctx, who, func(q *pgdb.Queries) error {
		id, err = q.AddToken(ctx, pgdb.AddTokenParams{
			Name: t.Name, Sum: sum[:], Role: t.Role, Tenant: t.Tenant, Subject: t.Subject, CreatedBy: who.Name, ExpiresAt: t.Expires,
		})
		return err
	})
	return id, err
}

// TokenOf is the token with this SHA-256, or ErrNotFound if there is none, or it has expired or was revoked.
func (db *DB) TokenOf(ctx context.Context, sum [32]byte) (Token, error) {
	row, err := db.query().TokenBySum(ctx, sum[:])
	return Token{Name: row.Name, Role: row.Role, Tenant: row.Tenant, Subject: row.Subject}, db.explain(err)
}

// Tokens are all there ever were, in the order in which they were made.
func (db *DB) Tokens(ctx context.Context, page Page) ([]Token, error) {
	rows, err := db.query().ListTokens(ctx, pgdb.ListTokensParams{After: page.After, Most: page.Most})
	if err != nil {
		return nil, db.explain(err)
	}
	all := make([]Token, len(rows))
	for i := range rows {
		r := &rows[i]
		all[i] = Token{r.ID, r.Name, r.Role, r.Tenant, r.Subject, r.CreatedBy, r.CreatedAt, r.ExpiresAt, r.RevokedAt}
	}
	return all, nil
}

// RevokeToken lets nobody in by this token any more.
func (db *DB) RevokeToken(ctx context.Context, who Who, id int64) error {
	return db.change(ctx, who, func(q *pgdb.Queries) error {
		if n, err := q.RevokeToken(ctx, id); err != nil || n > 0 {
			return err
		}
		return fmt.Errorf("token %d: %w", id, ErrNotFound)
	})
}
