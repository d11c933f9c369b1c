package pgrules

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
	"github.com/headgate/headgate/ruledoc"
)

// overrideRow is the part of an override that a node needs, from the table or the last good file.
type overrideRow struct {
	RuleID                       int64
	Limit, Subject, Text, Reason string
	Expires                      *time.Time
	Removed                      bool
}

const overrideColumns = "SELECT rule_id, limit_name, subject, limit_text, reason, expires_at, removed_at IS NOT NULL FROM rate_limit_overrides "

func scanOverride(rows pgx.Rows, o *overrideRow) error {
	return rows.Scan(&o.RuleID, &o.Limit, &o.Subject, &o.Text, &o.Reason, &o.Expires, &o.Removed)
}

// exemptionRow is the part of an exemption that a node needs, from the table or the last good file.
type exemptionRow struct {
	RuleID  *int64     `json:"rule_id,omitempty"`
	Type    string     `json:"type"`
	Value   string     `json:"value"`
	Reason  string     `json:"reason,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
	Removed bool       `json:"removed,omitempty"`
}

const exemptionColumns = "SELECT rule_id, subject_type, subject_value, reason, expires_at, removed_at IS NOT NULL FROM rate_limit_exemptions "

func scanExemption(rows pgx.Rows, x *exemptionRow) error {
	return rows.Scan(&x.RuleID, &x.Type, &x.Value, &x.Reason, &x.Expires, &x.Removed)
}

// exceptionRows are iterators over overrides and exemptions.
type exceptionRows struct {
	overrides  iter.Seq2[overrideRow, error]
	exemptions iter.Seq2[exemptionRow, error]
}

// stream returns an iterator over the rows of a query.
func stream[T any](ctx context.Context, tx pgx.Tx, scan func(pgx.Rows, *T) error, sql string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			yield(none, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var one T
			if err := scan(rows, &one); !yield(one, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(none, err)
		}
	}
}

// ruleSet has rules by id. Rules that are not in force have only a name.
type ruleSet map[int64]knownRule

// knownRule is a stored rule. rule is zero if it is not in force.
type knownRule struct {
	name    string
	inForce bool
	rule    headgate.Rule
}

// put parses a row and adds its rule.
func (s ruleSet) put(row *pgdb.RateLimitRule) error {
	known := knownRule{name: row.Name, inForce: row.Enabled}
	if row.Enabled {
		var err error
		if known.rule, err = parse(row); err != nil {
			return fmt.Errorf("%w: %w", ErrRejected, err)
		}
	}
	s[row.ID] = known
	return nil
}

// compile compiles the rules in force. It returns an error if they are invalid or harmful.
func (s ruleSet) compile(ctx context.Context, to position, maxMode headgate.Mode) (*headgate.RuleSet, error) {
	rules := make([]headgate.Rule, 0, len(s))
	for _, id := range slices.Sorted(maps.Keys(s)) {
		if s[id].inForce {
			rules = append(rules, s[id].rule)
		}
	}
	if to.Version == 0 && len(rules) == 0 { // nothing was ever published
		return headgate.Compile()
	}
	return checkSane(ctx, rules, max(ModeOf(to.Mode), maxMode))
}

// override returns the override of a row. It returns false if the override has no effect: its rule is not in force, or it is no
// longer valid, which is logged.
func (f *Follower) override(rules ruleSet, row *overrideRow) (headgate.Override, bool) {
	known := rules[row.RuleID]
	o := headgate.Override{Rule: known.name, Reason: row.Reason}
	if row.Expires != nil {
		o.Expires = *row.Expires
	}
	var err error
	if o.Subject, err = parseSubject(row.Subject); err != nil || known.name == "" {
		f.o.Log.Error("override unreadable; ignored", "rule_id", row.RuleID, "error", err)
		return o, false
	}
	limit := headgate.PerSecond(1) // any valid limit, to remove the override
	if !row.Removed {
		if !known.inForce {
			return o, false
		}
		if limit, err = limitOf(&known.rule, row.Limit, row.Text); err != nil {
			f.o.Log.Warn("override invalid; ignored", "rule", known.name, "error", err)
			return o, false
		}
	}
	if row.Limit == "" {
		o.Limit = limit
	} else {
		o.Limits = map[string]headgate.Limit{row.Limit: limit}
	}
	return o, true
}

// parseSubject parses a JSON object. It has a fast path for a single attribute, such as {"user":"ann"}, since there may be a million.
func parseSubject(text string) (headgate.Attributes, error) {
	words := strings.Split(text, `"`)
	if len(words) == 5 && words[0] == "{" && words[2] == ":" && words[4] == "}" && !strings.Contains(text, `\`) {
		return headgate.Attributes{words[1]: words[3]}, nil
	}
	var subject headgate.Attributes
	err := json.Unmarshal([]byte(text), &subject)
	return subject, err
}

// limitOf returns the limit of an override, which replaces the limit of a rule with this name.
func limitOf(rule *headgate.Rule, name, text string) (headgate.Limit, error) {
	own := rule.Limit
	if name != "" {
		own = rule.Limits[name]
	}
	if own.Count == 0 {
		return own, fmt.Errorf("rule %q has no limit %q to override", rule.ID, name)
	}
	return ruledoc.ParseLimit(text, own)
}

// exemption returns the exemption of a row. It returns false if its rule is unknown.
func (f *Follower) exemption(rules ruleSet, row *exemptionRow) (headgate.Exemption, bool) {
	x := headgate.Exemption{Attribute: row.Type, Value: row.Value, Reason: row.Reason}
	if row.Type == "ip_cidr" {
		x.Attribute = "ip"
	}
	if row.Expires != nil {
		x.Expires = *row.Expires
	}
	if row.RuleID != nil {
		x.Rule = rules[*row.RuleID].name
		if x.Rule == "" {
			return x, false
		}
	}
	return x, true
}

// readAll replaces the state in use by that of the database.
func (f *Follower) readAll(ctx context.Context, tx pgx.Tx, to position) error {
	rows, err := pgdb.New(tx).RulesSince(ctx, -1)
	if err != nil {
		return err
	}
	rules := ruleSet{}
	set, err := f.adopt(ctx, rules, rows, to)
	if err != nil {
		f.reject(err, to)
		return nil
	}
	section := f.lastGood.begin(true, rows)
	all := exceptionRows{
		stream(ctx, tx, scanOverride, overrideColumns+"WHERE removed_at IS NULL"),
		stream(ctx, tx, scanExemption, exemptionColumns+"WHERE removed_at IS NULL"),
	}
	if err := f.replace(rules, section, all); err != nil {
		section.abort()
		return err
	}
	f.applied(rules, set, to, section)
	return nil
}

// adopt adds rows to rules, and compiles the result. It returns an error if the result is invalid or harmful.
func (f *Follower) adopt(ctx context.Context, rules ruleSet, rows []pgdb.RateLimitRule, to position) (*headgate.RuleSet, error) {
	for i := range rows {
		if err := rules.put(&rows[i]); err != nil {
			return nil, err
		}
	}
	return rules.compile(ctx, to, f.o.Mode)
}

// replace replaces all overrides and exemptions of the limiter.
func (f *Follower) replace(rules ruleSet, section *sectionWriter, all exceptionRows) error {
	return f.o.Limiter.Exceptions().Replace(
		func(yield func(headgate.Override, error) bool) {
			for row, err := range all.overrides {
				section.override(&row)
				if o, ok := f.override(rules, &row); (ok || err != nil) && !yield(o, err) {
					return
				}
			}
		},
		func(yield func(headgate.Exemption, error) bool) {
			for row, err := range all.exemptions {
				section.write(kindExemption, &row)
				if x, ok := f.exemption(rules, &row); (ok || err != nil) && !yield(x, err) {
					return
				}
			}
		})
}

// readChanges applies the changes since the position in use.
func (f *Follower) readChanges(ctx context.Context, tx pgx.Tx, to position) error {
	rows, err := pgdb.New(tx).RulesSince(ctx, f.at.Seq)
	if err != nil {
		return err
	}
	rules := f.rules
	var set *headgate.RuleSet
	if to.Version != f.at.Version || to.Mode != f.at.Mode {
		rules = maps.Clone(f.rules)
		if set, err = f.adopt(ctx, rules, rows, to); err != nil {
			f.reject(err, to)
			return nil
		}
	}
	section := f.lastGood.begin(false, rows)
	changes := exceptionRows{
		stream(ctx, tx, scanOverride, overrideColumns+"WHERE seq > $1", f.at.Seq),
		stream(ctx, tx, scanExemption, exemptionColumns+"WHERE seq > $1", f.at.Seq),
	}
	if changed := changedLimits(f.rules, rules, rows); len(changed) > 0 {
		// Overrides take the algorithm and the window from the limits of their rule, which have changed.
		changes.overrides = stream(ctx, tx, scanOverride, overrideColumns+"WHERE seq > $1 OR rule_id = ANY ($2) AND removed_at IS NULL",
			f.at.Seq, changed)
	}
	if err := f.apply(rules, section, changes); err != nil {
		section.abort()
		return err
	}
	f.applied(rules, set, to, section)
	return nil
}

// apply changes single overrides and exemptions. After an error it can be repeated.
func (f *Follower) apply(rules ruleSet, section *sectionWriter, changed exceptionRows) error {
	in := f.o.Limiter.Exceptions()
	for row, err := range changed.overrides {
		if err != nil {
			return err
		}
		section.override(&row)
		o, ok := f.override(rules, &row)
		switch {
		case ok && !row.Removed:
			if err := in.Set(o); err != nil {
				f.o.Log.Warn("override invalid; ignored", "rule", o.Rule, "error", err)
			}
		case ok:
			in.Unset(o)
		}
	}
	for row, err := range changed.exemptions {
		if err != nil {
			return err
		}
		section.write(kindExemption, &row)
		x, ok := f.exemption(rules, &row)
		switch {
		case ok && !row.Removed:
			if err := in.Exempt(x); err != nil {
				f.o.Log.Warn("exemption invalid; ignored", "rule", x.Rule, "error", err)
			}
		case ok:
			in.Unexempt(x)
		}
	}
	return nil
}

// changedLimits returns the rules whose overrides must be read again.
func changedLimits(before, after ruleSet, rows []pgdb.RateLimitRule) []int64 {
	var changed []int64
	for i := range rows {
		was, is := before[rows[i].ID], after[rows[i].ID]
		if is.inForce && (!was.inForce || !sameExceptCount(&was.rule, &is.rule)) {
			changed = append(changed, rows[i].ID)
		}
	}
	return changed
}

// sameExceptCount reports whether the limits of two rules differ in count and burst only, so that overrides of one fit the other.
func sameExceptCount(a, b *headgate.Rule) bool {
	same := func(x, y headgate.Limit) bool {
		x.Count, x.Burst, y.Count, y.Burst = 0, 0, 0, 0
		return x.String() == y.String()
	}
	return same(a.Limit, b.Limit) && maps.EqualFunc(a.Limits, b.Limits, same)
}

// setInUse sets the state in use. set is nil if the rules have not changed.
func (f *Follower) setInUse(rules ruleSet, set *headgate.RuleSet, to position) {
	f.rules, f.at, f.rejected = rules, to, position{}
	if set != nil {
		f.o.Limiter.SetRules(set)
		f.version = fmt.Sprintf("%d:%s", to.Version, set.Version())
	}
}

// applied sets the state in use, reports rules that were put in force, and saves the last good state.
func (f *Follower) applied(rules ruleSet, set *headgate.RuleSet, to position, section *sectionWriter) {
	f.setInUse(rules, set, to)
	if set != nil {
		f.problem = ""
		f.report(ruledoc.Event{Kind: ruledoc.Applied})
	} else {
		f.recovered()
	}
	f.reportSave(section.commit(to))
}

// reject records and reports that the state of the database is invalid. The state in use stays.
func (f *Follower) reject(err error, to position) {
	f.rejected, f.rejection = to, fmt.Errorf("version %d in PostgreSQL at %s: %w", to.Version, f.db.address, err)
	f.reportProblem(f.rejection)
}

// reportSave reports an error of saving the last good state, once for each error.
func (f *Follower) reportSave(err error) {
	if text := fmt.Sprint(err); err != nil && text != f.saveProblem {
		f.saveProblem = text
		f.report(ruledoc.Event{Kind: ruledoc.SaveFailed, Err: err})
	} else if err == nil {
		f.saveProblem = ""
	}
}
