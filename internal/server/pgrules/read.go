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

// overrideRow is what a node needs of an override, from the table or from what was kept.
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

// exemptionRow likewise.
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

// exceptionRows are overrides and exemptions, read one by one.
type exceptionRows struct {
	overrides  iter.Seq2[overrideRow, error]
	exemptions iter.Seq2[exemptionRow, error]
}

// stream is the rows of a question, one by one.
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

// ruleSet is rules by id, those that are not in force without their rule.
type ruleSet map[int64]knownRule

type knownRule struct {
	name    string
	inForce bool
	rule    headgate.Rule
}

// put reads a row.
func (s ruleSet) put(row *pgdb.RateLimitRule) error {
	known := knownRule{name: row.Name, inForce: row.Enabled}
	if row.Enabled {
		var err error
		if known.rule, err = parse(row); err != nil {
			return fmt.Errorf("%w: %w", ErrDenied, err)
		}
	}
	s[row.ID] = known
	return nil
}

// compile is the rules in force, if they are sane.
func (s ruleSet) compile(ctx context.Context, to position, most headgate.Mode) (*headgate.RuleSet, error) {
	rules := make([]headgate.Rule, 0, len(s))
	for _, id := range slices.Sorted(maps.Keys(s)) {
		if s[id].inForce {
			rules = append(rules, s[id].rule)
		}
	}
	if to.Version == 0 && len(rules) == 0 { // nothing was ever published
		return headgate.Compile()
	}
	return checkSane(ctx, rules, max(ModeOf(to.Mode), most))
}

// override is false for what has no effect: its rule is not in force, or it makes no sense any more, which the log is told.
func (f *Follower) override(rules ruleSet, row *overrideRow) (headgate.Override, bool) {
	known := rules[row.RuleID]
	o := headgate.Override{Rule: known.name, Reason: row.Reason}
	if row.Expires != nil {
		o.Expires = *row.Expires
	}
	var err error
	if o.Subject, err = parseSubject(row.Subject); err != nil || known.name == "" {
		f.o.Log.Error("an override cannot be read", "rule", row.RuleID, "error", err)
		return o, false
	}
	limit := headgate.PerSecond(1) // any, to have it removed
	if !row.Removed {
		if !known.inForce {
			return o, false
		}
		if limit, err = limitOf(&known.rule, row.Limit, row.Text); err != nil {
			f.o.Log.Warn("an override has no effect", "rule", known.name, "error", err)
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

// parseSubject reads {"user":"ann"}, of which there may be a million, or any other object.
func parseSubject(text string) (headgate.Attributes, error) {
	words := strings.Split(text, `"`)
	if len(words) == 5 && words[0] == "{" && words[2] == ":" && words[4] == "}" && !strings.Contains(text, `\`) {
		return headgate.Attributes{words[1]: words[3]}, nil
	}
	var subject headgate.Attributes
	err := json.Unmarshal([]byte(text), &subject)
	return subject, err
}

// limitOf is the limit that a subject has instead of a rule's.
func limitOf(rule *headgate.Rule, name, text string) (headgate.Limit, error) {
	own := rule.Limit
	if name != "" {
		own = rule.Limits[name]
	}
	if own.Count == 0 {
		return own, fmt.Errorf("rule %q has no limit %q for this to replace", rule.ID, name)
	}
	return ruledoc.ParseLimit(text, own)
}

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

// readAll puts everything there is in the place of everything in use.
func (f *Follower) readAll(ctx context.Context, tx pgx.Tx, to position) error {
	rows, err := pgdb.New(tx).RulesSince(ctx, -1)
	if err != nil {
		return err
	}
	rules := ruleSet{}
	set, err := f.adopt(ctx, rules, rows, to)
	if err != nil {
		f.deny(err, to)
		return nil
	}
	kept := f.keep.begin(true, rows)
	all := exceptionRows{
		stream(ctx, tx, scanOverride, overrideColumns+"WHERE removed_at IS NULL"),
		stream(ctx, tx, scanExemption, exemptionColumns+"WHERE removed_at IS NULL"),
	}
	if err := f.replace(rules, kept, all); err != nil {
		kept.forget()
		return err
	}
	f.changed(rules, set, to, kept)
	return nil
}

// adopt brings rows into rules, and says whether they can be used.
func (f *Follower) adopt(ctx context.Context, rules ruleSet, rows []pgdb.RateLimitRule, to position) (*headgate.RuleSet, error) {
	for i := range rows {
		if err := rules.put(&rows[i]); err != nil {
			return nil, err
		}
	}
	return rules.compile(ctx, to, f.o.Mode)
}

// replace has the limiter take these overrides and exemptions instead of all it had.
func (f *Follower) replace(rules ruleSet, kept *keeping, all exceptionRows) error {
	return f.o.Limiter.Exceptions().Replace(
		func(yield func(headgate.Override, error) bool) {
			for row, err := range all.overrides {
				kept.override(&row)
				if o, ok := f.override(rules, &row); (ok || err != nil) && !yield(o, err) {
					return
				}
			}
		},
		func(yield func(headgate.Exemption, error) bool) {
			for row, err := range all.exemptions {
				kept.write(kindExemption, &row)
				if x, ok := f.exemption(rules, &row); (ok || err != nil) && !yield(x, err) {
					return
				}
			}
		})
}

// readChanges takes over what has changed since the last time.
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
			f.deny(err, to)
			return nil
		}
	}
	kept := f.keep.begin(false, rows)
	changes := exceptionRows{
		stream(ctx, tx, scanOverride, overrideColumns+"WHERE seq > $1", f.at.Seq),
		stream(ctx, tx, scanExemption, exemptionColumns+"WHERE seq > $1", f.at.Seq),
	}
	if changed := recount(f.rules, rules, rows); len(changed) > 0 {
		// Their overrides count as the rules' own limits do, which count in another way now.
		changes.overrides = stream(ctx, tx, scanOverride, overrideColumns+"WHERE seq > $1 OR rule_id = ANY ($2) AND removed_at IS NULL",
			f.at.Seq, changed)
	}
	if err := f.apply(rules, kept, changes); err != nil {
		kept.forget()
		return err
	}
	f.changed(rules, set, to, kept)
	return nil
}

// apply changes single overrides and exemptions. Should it break off, it is done again.
func (f *Follower) apply(rules ruleSet, kept *keeping, changed exceptionRows) error {
	in := f.o.Limiter.Exceptions()
	for row, err := range changed.overrides {
		if err != nil {
			return err
		}
		kept.override(&row)
		o, ok := f.override(rules, &row)
		switch {
		case ok && !row.Removed:
			if err := in.Set(o); err != nil {
				f.o.Log.Warn("an override has no effect", "rule", o.Rule, "error", err)
			}
		case ok:
			in.Unset(o)
		}
	}
	for row, err := range changed.exemptions {
		if err != nil {
			return err
		}
		kept.write(kindExemption, &row)
		x, ok := f.exemption(rules, &row)
		switch {
		case ok && !row.Removed:
			if err := in.Exempt(x); err != nil {
				f.o.Log.Warn("an exemption has no effect", "rule", x.Rule, "error", err)
			}
		case ok:
			in.Unexempt(x)
		}
	}
	return nil
}

// recount are the rules whose overrides must be read again.
func recount(before, after ruleSet, rows []pgdb.RateLimitRule) []int64 {
	var changed []int64
	for i := range rows {
		was, is := before[rows[i].ID], after[rows[i].ID]
		if is.inForce && (!was.inForce || !countsAlike(&was.rule, &is.rule)) {
			changed = append(changed, rows[i].ID)
		}
	}
	return changed
}

// countsAlike is whether what replaces a limit of one rule may replace that of the other unchanged.
func countsAlike(a, b *headgate.Rule) bool {
	alike := func(x, y headgate.Limit) bool {
		x.Count, x.Burst, y.Count, y.Burst = 0, 0, 0, 0
		return x.String() == y.String()
	}
	return alike(a.Limit, b.Limit) && maps.EqualFunc(a.Limits, b.Limits, alike)
}

// used notes what is in use now. A set is nil if the rules are as before.
func (f *Follower) used(rules ruleSet, set *headgate.RuleSet, to position) {
	f.rules, f.at, f.denied = rules, to, position{}
	if set != nil {
		f.o.Limiter.SetRules(set)
		f.version = fmt.Sprintf("%d:%s", to.Version, set.Version())
	}
}

// changed notes what is in use now and keeps it, and reports rules that were put in force.
func (f *Follower) changed(rules ruleSet, set *headgate.RuleSet, to position, kept *keeping) {
	f.used(rules, set, to)
	if set != nil {
		f.problem = ""
		f.say(ruledoc.Event{Kind: ruledoc.Applied})
	} else {
		f.recovered()
	}
	f.note(kept.end(to))
}

// deny notes that what is there cannot be used; what is in use stays.
func (f *Follower) deny(err error, to position) {
	f.denied, f.denial = to, fmt.Errorf("version %d in PostgreSQL at %s: %w", to.Version, f.db.address, err)
	f.trouble(f.denial)
}

// note tells of what could not be kept.
func (f *Follower) note(err error) {
	if text := fmt.Sprint(err); err != nil && text != f.keepSaid {
		f.keepSaid = text
		f.say(ruledoc.Event{Kind: ruledoc.SaveFailed, Err: err})
	} else if err == nil {
		f.keepSaid = ""
	}
}
