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

// AnyRevision of a rule will do.
const AnyRevision = -1

// Edit is what becomes of one rule.
type Edit struct {
	// Name of the rule.
	Name string
	// Put is what it says from now on; nil takes it out of force, and keeps its history.
	Put *Definition
	// Revision is the one that the edit was made from: 0 if there was no such rule, or AnyRevision.
	Revision int64
}

// Change is what becomes of the rules, as one.
type Change struct {
	Edits []Edit
	// Prune takes out of force all other rules but those that tenants have made.
	Prune bool
	// Mode is the most that any rule may do from now on; nil leaves it as it is.
	Mode *headgate.Mode
	// Base is the version that the change was made from; nil is any.
	Base *int64
	// DryRun writes nothing.
	DryRun bool
}

// Outcome is what a change comes to.
type Outcome struct {
	// Version is the one made, or the present one if nothing was written.
	Version int64
	// Before and After are the rules in force.
	Before, After         []headgate.Rule
	ModeBefore, ModeAfter headgate.Mode
}

// Publish makes a version of the rules of a change, unless nothing changes. All of it happens or nothing: if something was
// changed by somebody else meanwhile (ErrConflict), is not there (ErrNotFound) or the rules as a whole make no sense
// (ErrDenied).
func (db *DB) Publish(ctx context.Context, who Who, change Change) (Outcome, error) {
	for range maxPublishAttempts {
		outcome, err := db.publish(ctx, who, &change)
		if !errors.Is(err, errMoved) {
			return outcome, err
		}
	}
	return Outcome{}, fmt.Errorf("%w: others publish all the time: try again", ErrConflict)
}

// maxPublishAttempts is how often a change is planned anew because others have published meanwhile. Of writers at once one gets
// through each time.
const maxPublishAttempts = 20

// errMoved says that there is a newer version than the one that was checked.
var errMoved = errors.New("another version was published")

func (db *DB) publish(ctx context.Context, who Who, change *Change) (Outcome, error) {
	plan, err := db.plan(ctx, who.Tenant, change)
	if err != nil {
		return Outcome{}, err
	}
	outcome := plan.Outcome
	if !plan.changes() {
		return outcome, nil
	}
	// What was counted is what is there when the change is written: else the version is another by then.
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

// plan is a version that is not published yet.
type plan struct {
	Outcome // its version is the one that the plan is made from
	prune   bool
	inserts []pgdb.RateLimitRule
	updates []pgdb.RateLimitRule
	// tenant is the one whose quotas apply, "" if none do, and what its rules take of them before and after.
	tenant              string
	useBefore, useAfter quotaUse
}

func (p *plan) changes() bool {
	return len(p.inserts)+len(p.updates) > 0 || p.ModeAfter != p.ModeBefore
}

// plan finds out what edits come to. If they are made by somebody who is bound to a tenant, it counts what they take of its
// quotas.
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
		return nil, fmt.Errorf("%w: the rules are at version %d, not %d: look at what has changed, and plan again", ErrConflict,
			state.Version, *change.Base)
	}
	p := &plan{prune: change.Prune, tenant: tenant}
	p.Version, p.ModeBefore, p.ModeAfter = state.Version, ModeOf(state.Mode), ModeOf(state.Mode)
	if change.Mode != nil {
		p.ModeAfter = *change.Mode
	}
	edits := change.Edits
	byName := make(map[string]*Edit, len(edits))
	for i := range edits {
		if byName[edits[i].Name] != nil {
			return nil, fmt.Errorf("%w: rule %q is there twice", ErrDenied, edits[i].Name)
		}
		byName[edits[i].Name] = &edits[i]
	}
	for i := range rows {
		edit := byName[rows[i].Name]
		delete(byName, rows[i].Name)
		if err := p.take(db, &rows[i], edit); err != nil {
			return nil, err
		}
	}
	for i := range edits {
		if byName[edits[i].Name] == nil {
			continue
		}
		if err := p.add(&edits[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// take brings a rule that is there into the plan, with its edit, if there is one.
func (p *plan) take(db *DB, row *pgdb.RateLimitRule, edit *Edit) error {
	if edit == nil && p.prune && row.Owner == "" {
		edit = &Edit{Revision: AnyRevision}
	}
	var rule headgate.Rule // nothing if it is not in force
	if row.Enabled {
		var err error
		rule, err = db.parse(row)
		switch {
		case err == nil:
			p.Before = append(p.Before, rule)
		case edit == nil:
			return fmt.Errorf("%w: %w", ErrDenied, err)
		}
	}
	p.count(&p.useBefore, row.Owner, &rule, row.Enabled)
	switch {
	case edit == nil:
		p.keep(row.Owner, &rule, row.Enabled)
		return nil
	case edit.Revision != AnyRevision && edit.Revision != row.Seq:
		return fmt.Errorf("rule %q: %w: it is at revision %d, not %d: read it again", row.Name, ErrConflict, row.Seq, edit.Revision)
	case edit.Put == nil:
		p.keep(row.Owner, &rule, false)
		if row.Enabled {
			off := *row
			off.Enabled = false
			p.updates = append(p.updates, off)
		}
		return nil
	case edit.Put.Owner != row.Owner:
		return fmt.Errorf("%w: rule %q is somebody else's: choose another name", ErrDenied, row.Name)
	}
	p.keep(row.Owner, &edit.Put.Rule, edit.Put.Enabled)
	now := edit.Put.row()
	now.ID = row.ID
	if !sameRow(row, &now) {
		p.updates = append(p.updates, now)
	}
	return nil
}

// keep notes what a rule will be.
func (p *plan) keep(owner string, rule *headgate.Rule, enabled bool) {
	if enabled {
		p.After = append(p.After, *rule)
	}
	p.count(&p.useAfter, owner, rule, enabled)
}

// count adds a rule to what its tenant uses, if it is the one whose quotas apply.
func (p *plan) count(use *quotaUse, owner string, rule *headgate.Rule, enabled bool) {
	if p.tenant != "" && p.tenant == owner {
		use.add(rule, enabled)
	}
}

// add brings in a rule that was not there.
func (p *plan) add(edit *Edit) error {
	switch {
	case edit.Put == nil:
		return fmt.Errorf("rule %q: %w", edit.Name, ErrNotFound)
	case edit.Revision > 0:
		return fmt.Errorf("rule %q: %w: it is not there, and was at revision %d", edit.Name, ErrConflict, edit.Revision)
	}
	p.keep(edit.Put.Owner, &edit.Put.Rule, edit.Put.Enabled)
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

// sameRow is whether two rows of a rule say the same.
func sameRow(a, b *pgdb.RateLimitRule) bool {
	return sameColumns(a, b) && a.Enabled == b.Enabled && same(a.Document, b.Document)
}

// sameColumns is whether the columns say the same of a rule. An algorithm may have two names.
func sameColumns(a, b *pgdb.RateLimitRule) bool {
	one, other := flatOf(a), flatOf(b)
	one.Enabled, other.Enabled = true, true
	return one.Equal(other)
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// Rollback makes a version of the rules that is as an earlier one was, to the byte.
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
				return Outcome{}, fmt.Errorf("%w: version %d: %w", ErrDenied, to, err)
			}
		} else if !row.Enabled {
			continue
		}
		edits = append(edits, edit)
	}
	return db.Publish(ctx, who, Change{Edits: edits, Mode: &mode})
}

// ModeOf returns the mode of a word in the tables.
func ModeOf(word string) headgate.Mode {
	modes := []headgate.Mode{headgate.Enforce, headgate.Shadow, headgate.Off}
	return modes[max(0, slices.IndexFunc(modes, func(m headgate.Mode) bool { return strings.EqualFold(m.String(), word) }))]
}
