package pgrules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// AnyRevision makes an Edit apply to any revision of its rule.
const AnyRevision = -1

// Edit is the change of one rule.
type Edit struct {
	// Name is the name of the rule.
	Name string
	// Put is the new definition. nil disables the rule and keeps its history.
	Put *Definition
	// Revision is the revision that the edit is based on: 0 if the rule did not exist, or AnyRevision.
	Revision int64
}

// Change is an atomic change of the rules.
type Change struct {
	Edits []Edit
	// Prune disables all other rules, except those that tenants have made.
	Prune bool
	// Mode caps the mode of all rules; nil does not change it.
	Mode *headgate.Mode
	// Base is the version that the change is based on; nil is any version.
	Base *int64
	// DryRun writes nothing.
	DryRun bool
}

// Outcome is the result of a change.
type Outcome struct {
	// Version is the new version, or the current version if nothing was written.
	Version int64
	// Before and After are the rules in force before and after the change.
	Before, After         []headgate.Rule
	ModeBefore, ModeAfter headgate.Mode
}

// Publish makes a new version of the rules, unless nothing changes. The change is atomic. It fails with ErrConflict if another writer
// has changed one of the rules, with ErrNotFound if a rule does not exist, and with ErrRejected if the resulting rules are invalid or
// harmful.
func (db *DB) Publish(ctx context.Context, who Who, change Change) (Outcome, error) {
	for range maxPublishAttempts {
		outcome, err := db.publish(ctx, who, &change)
		if !errors.Is(err, errMoved) {
			return outcome, err
		}
	}
	return Outcome{}, fmt.Errorf("%w: too many concurrent changes: try again", ErrConflict)
}

// maxPublishAttempts is how often a change is planned again because another writer has published in the meantime. One of all
// concurrent writers succeeds in each round.
const maxPublishAttempts = 20

// errMoved means that a newer version was published after the change was checked.
var errMoved = errors.New("another version was published")

// publish makes one attempt to publish a change. It returns errMoved if another version was published in the meantime.
func (db *DB) publish(ctx context.Context, who Who, change *Change) (Outcome, error) {
	plan, err := db.plan(ctx, who.Tenant, change)
	if err != nil {
		return Outcome{}, err
	}
	outcome := plan.Outcome
	if !plan.changes() {
		return outcome, nil
	}
	// The count is still exact when the change is written, since otherwise the version has changed.
	if err := db.quotas.within(who.Tenant, plan.useBefore, plan.useAfter); err != nil {
		return outcome, err
	}
	if _, err := checkSane(ctx, plan.After, plan.ModeAfter); err != nil || change.DryRun {
		return outcome, err
	}
	err = db.change(ctx, who, func(q *pgdb.Queries) error {
		state, err := q.LockState(ctx)
		if err != nil {
			return err
		}
		if state.Version != plan.Version {
			return fmt.Errorf("%w: %w", ErrConflict, errMoved)
		}
		if err := db.spendChanges(ctx, q, who.Tenant, plan.weight()); err != nil {
			return err
		}
		if err := plan.write(ctx, q); err != nil {
			return err
		}
		made, err := q.State(ctx)
		outcome.Version = made.Version
		return err
	})
	return outcome, err
}

// plan is a version that is not yet published.
type plan struct {
	Outcome // Version is the version that the plan is based on
	prune   bool
	inserts []pgdb.RateLimitRule
	updates []pgdb.RateLimitRule
	owners  map[string]string // of the rules in After
	// tenant is the tenant whose quotas apply, "" if none apply. useBefore and useAfter are its use of them.
	tenant              string
	useBefore, useAfter quotaUse
}

func (p *plan) changes() bool {
	return len(p.inserts)+len(p.updates) > 0 || p.ModeAfter != p.ModeBefore
}

// plan returns the plan of a change. If its author is bound to a tenant, it counts the use of the tenant's quotas.
func (db *DB) plan(ctx context.Context, tenant string, change *Change) (*plan, error) {
	q := db.query()
	state, err := q.State(ctx)
	if err != nil {
		return nil, db.explain(err)
	}
	rows, err := q.RulesSince(ctx, -1)
	if err != nil {
		return nil, db.explain(err)
	}
	if change.Base != nil && *change.Base != state.Version {
		return nil, fmt.Errorf("%w: the rules are at version %d, not %d: review the changes and plan again", ErrConflict,
			state.Version, *change.Base)
	}
	p := &plan{prune: change.Prune, tenant: tenant, owners: map[string]string{}}
	p.Version, p.ModeBefore, p.ModeAfter = state.Version, ModeOf(state.Mode), ModeOf(state.Mode)
	if change.Mode != nil {
		p.ModeAfter = *change.Mode
	}
	edits := change.Edits
	byName := make(map[string]*Edit, len(edits))
	for i := range edits {
		if byName[edits[i].Name] != nil {
			return nil, fmt.Errorf("%w: rule %q: duplicate", ErrRejected, edits[i].Name)
		}
		byName[edits[i].Name] = &edits[i]
	}
	for i := range rows {
		edit := byName[rows[i].Name]
		delete(byName, rows[i].Name)
		if err := p.addExisting(db, &rows[i], edit); err != nil {
			return nil, err
		}
	}
	for i := range edits {
		if byName[edits[i].Name] == nil {
			continue
		}
		if err := p.addNew(&edits[i]); err != nil {
			return nil, err
		}
	}
	if err := p.checkCounters(); err != nil {
		return nil, err
	}
	return p, nil
}

// checkCounters rejects rules that charge the counters of a rule that is not in force, or that belongs to another owner: its owner could
// not disable it any more, and a tenant could use up the units of others.
func (p *plan) checkCounters() error {
	for i := range p.After {
		r := &p.After[i]
		if r.Counter == "" {
			continue
		}
		switch owner, ok := p.owners[r.Counter]; {
		case !ok:
			return fmt.Errorf("%w: rule %q charges the counters of rule %q, which would not be in force: change or disable both together",
				ErrRejected, r.ID, r.Counter)
		case owner != p.owners[r.ID]:
			return fmt.Errorf("%w: rule %q: counter: rule %q belongs to another owner: write by and limit instead", ErrRejected, r.ID, r.Counter)
		}
	}
	return nil
}

// addExisting adds a stored rule to the plan, with its edit, which may be nil.
func (p *plan) addExisting(db *DB, row *pgdb.RateLimitRule, edit *Edit) error {
	if edit == nil && p.prune && row.Owner == "" {
		edit = &Edit{Revision: AnyRevision}
	}
	var rule headgate.Rule // zero if it is not in force
	if row.Enabled {
		var err error
		rule, err = db.parse(row)
		switch {
		case err == nil:
			p.Before = append(p.Before, rule)
		case edit == nil:
			return fmt.Errorf("%w: %w", ErrRejected, err)
		}
	}
	p.count(&p.useBefore, row.Owner, &rule, row.Enabled)
	switch {
	case edit == nil:
		p.addAfter(row.Owner, &rule, row.Enabled)
		return nil
	case edit.Revision != AnyRevision && edit.Revision != row.Seq:
		return fmt.Errorf("rule %q: %w: at revision %d, not %d: read it again", row.Name, ErrConflict, row.Seq, edit.Revision)
	case edit.Put == nil:
		p.addAfter(row.Owner, &rule, false)
		if row.Enabled {
			off := *row
			off.Enabled = false
			p.updates = append(p.updates, off)
		}
		return nil
	case edit.Put.Owner != row.Owner:
		return fmt.Errorf("%w: rule %q: belongs to another owner: choose another name", ErrRejected, row.Name)
	}
	p.addAfter(row.Owner, &edit.Put.Rule, edit.Put.Enabled)
	now := edit.Put.row()
	now.ID = row.ID
	if !sameRow(row, &now) {
		p.updates = append(p.updates, now)
	}
	return nil
}

// addAfter adds a rule to the state after the change.
func (p *plan) addAfter(owner string, rule *headgate.Rule, enabled bool) {
	if enabled {
		p.After = append(p.After, *rule)
		p.owners[rule.ID] = owner
	}
	p.count(&p.useAfter, owner, rule, enabled)
}

// count adds a rule to the use of quotas, if its owner is the tenant whose quotas apply.
func (p *plan) count(use *quotaUse, owner string, rule *headgate.Rule, enabled bool) {
	if p.tenant != "" && p.tenant == owner {
		use.add(rule, enabled)
	}
}

// addNew adds a rule that is not stored yet.
func (p *plan) addNew(edit *Edit) error {
	switch {
	case edit.Put == nil:
		return fmt.Errorf("rule %q: %w", edit.Name, ErrNotFound)
	case edit.Revision > 0:
		return fmt.Errorf("rule %q: %w: does not exist, expected revision %d", edit.Name, ErrConflict, edit.Revision)
	}
	p.addAfter(edit.Put.Owner, &edit.Put.Rule, edit.Put.Enabled)
	p.inserts = append(p.inserts, edit.Put.row())
	return nil
}

func (p *plan) write(ctx context.Context, q *pgdb.Queries) error {
	if p.ModeAfter != p.ModeBefore {
		if err := q.SetMode(ctx, p.ModeAfter.String()); err != nil {
			return err
		}
	}
	for _, batch := range []struct {
		rows  []pgdb.RateLimitRule
		write func(context.Context, json.RawMessage) error
	}{{p.inserts, q.InsertRules}, {p.updates, q.UpdateRules}} {
		if len(batch.rows) == 0 {
			continue
		}
		rows, err := json.Marshal(batch.rows)
		if err != nil {
			return err
		}
		if err := batch.write(ctx, rows); err != nil {
			return err
		}
	}
	return nil
}

// sameRow reports whether two rows define the same rule.
func sameRow(a, b *pgdb.RateLimitRule) bool {
	return sameColumns(a, b) && a.Enabled == b.Enabled && same(a.Document, b.Document)
}

// sameColumns reports whether the columns of two rows define the same rule. Two names of one algorithm are the same.
func sameColumns(a, b *pgdb.RateLimitRule) bool {
	one, other := flatOf(a), flatOf(b)
	one.Enabled, other.Enabled = true, true
	return one.Equal(other)
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// Rollback makes a new version with the rules of an earlier version, byte for byte.
func (db *DB) Rollback(ctx context.Context, who Who, to int64) (Outcome, error) {
	mode, then, err := db.rowsAt(ctx, to)
	if err != nil {
		return Outcome{}, err
	}
	wanted := make(map[int64]*pgdb.RateLimitRule, len(then))
	for i := range then {
		wanted[then[i].ID] = &then[i]
	}
	now, err := db.query().RulesSince(ctx, -1)
	if err != nil {
		return Outcome{}, db.explain(err)
	}
	var edits []Edit
	for i := range now {
		row := &now[i]
		edit := Edit{Name: row.Name, Revision: row.Seq}
		if was := wanted[row.ID]; was != nil {
			if sameRow(row, was) {
				continue
			}
			if edit.Put, err = db.definitionOf(was); err != nil {
				return Outcome{}, fmt.Errorf("%w: version %d: %w", ErrRejected, to, err)
			}
		} else if !row.Enabled {
			continue
		}
		edits = append(edits, edit)
	}
	return db.Publish(ctx, who, Change{Edits: edits, Mode: &mode})
}

// ModeOf returns the mode with this name in the tables.
func ModeOf(word string) headgate.Mode {
	modes := []headgate.Mode{headgate.Enforce, headgate.Shadow, headgate.Off}
	return modes[max(0, slices.IndexFunc(modes, func(m headgate.Mode) bool { return strings.EqualFold(m.String(), word) }))]
}
