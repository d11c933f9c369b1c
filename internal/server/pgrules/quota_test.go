package pgrules_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/meter"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// eve is an editor of tenant acme.
var eve = pgrules.Who{Name: "eve", Tenant: "acme"}

// small are quotas that a test can reach.
var small = pgrules.Quotas{Rules: 5, Limits: 12, ConditionSteps: 60_000, Exceptions: 20, MeteredSubjects: 30, ChangesPerDay: 1_000}

// own returns an edit of a rule of tenant acme with additional keys.
func own(t *testing.T, id, keys string) pgrules.Edit {
	t.Helper()
	d := define(t, fmt.Sprintf(`{"id": %q, "by": ["tenant", "user"], "match": {"tenant": "acme"}, "limit": "10/minute"%s}`, id, keys))
	d.Owner = "acme"
	return pgrules.Edit{Name: id, Put: d, Revision: pgrules.AnyRevision}
}

func wantQuota(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, pgrules.ErrRejected) {
		t.Errorf("%v, want a quota error", err)
		return
	}
	for _, w := range append(words, "quota of tenant acme", "ask an operator") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v\nwant %q", err, w)
		}
	}
}

func TestQuotaOfRules(t *testing.T) {
	t.Parallel()
	db, _ := newDB(t)
	db.SetQuotas(small)
	change := func(who pgrules.Who, edits ...pgrules.Edit) error {
		_, err := db.Publish(t.Context(), who, pgrules.Change{Edits: edits})
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put(t, db, document("ours", "10/minute"))
	must(change(eve, own(t, "a", ""), own(t, "b", ""), own(t, "c", "")))
	// Condition steps: 25600 for each expression with three live instructions.
	slow := `, "when": "path.matches('^/v[0-9]+/')"`
	must(change(eve, own(t, "a", slow), own(t, "b", slow)))
	wantQuota(t, change(eve, own(t, "c", slow)), "has 51200 condition steps", "would have 76800", "at most 60000", "tenants.max_condition_steps")
	// Weights of limits: a sliding_log weighs 8.
	heavy := `, "algorithm": "sliding_log"`
	must(change(eve, own(t, "c", heavy)))
	wantQuota(t, change(eve, own(t, "d", heavy)), "has 10 limits", "would have 18", "at most 12", "tenants.max_limits")
	must(change(eve, own(t, "d", ""), own(t, "e", "")))
	// The number of rules, including disabled rules.
	must(change(eve, pgrules.Edit{Name: "e", Revision: pgrules.AnyRevision}))
	wantQuota(t, change(eve, own(t, "f", "")), "has 5 rules, including disabled rules", "would have 6", "at most 5", "tenants.max_rules")
	dry := pgrules.Change{Edits: []pgrules.Edit{own(t, "f", "")}, DryRun: true}
	if _, err := db.Publish(t.Context(), eve, dry); !errors.Is(err, pgrules.ErrRejected) {
		t.Errorf("a dry run: %v", err)
	}
	// Quotas do not apply to operators. Where a quota is exceeded, changes that do not increase the use are still possible.
	must(change(ann, own(t, "f", slow), own(t, "g", slow)))
	wantQuota(t, change(eve, own(t, "h", "")), "tenants.max_rules")
	must(change(eve, own(t, "d", `, "mode": "shadow"`)))
	must(change(eve, own(t, "g", "")))
}

// Concurrent writers over several connections reach the quota and never exceed it.
func TestQuotasAreExact(t *testing.T) {
	t.Parallel()
	db, server := newDB(t)
	put(t, db, document("ours", "10/minute"))
	dbs := make([]*pgrules.DB, 4)
	for i := range dbs {
		dbs[i] = open(t, server)
		dbs[i].SetQuotas(small)
	}
	race := func(what string, tries int, write func(db *pgrules.DB, i int) error) {
		t.Helper()
		var all sync.WaitGroup
		var done, rejected atomic.Int32
		for i := range tries {
			all.Go(func() {
				for {
					err := write(dbs[i%len(dbs)], i)
					switch {
					case err == nil:
						done.Add(1)
					case errors.Is(err, pgrules.ErrConflict):
						continue
					case errors.Is(err, pgrules.ErrRejected):
						rejected.Add(1)
					default:
						t.Errorf("%s %d: %v", what, i, err)
					}
					return
				}
			})
		}
		all.Wait()
		t.Logf("%s: %d written, %d rejected", what, done.Load(), rejected.Load())
	}
	race("rules", 24, func(db *pgrules.DB, i int) error {
		_, err := db.Publish(t.Context(), eve, pgrules.Change{Edits: []pgrules.Edit{own(t, fmt.Sprintf("r%d", i), "")}})
		return err
	})
	if n := one[int](t, server, "SELECT count(*) FROM rate_limit_rules WHERE owner = 'acme'"); n != small.Rules {
		t.Fatalf("%d rules, want %d", n, small.Rules)
	}
	rule := one[string](t, server, "SELECT min(name) FROM rate_limit_rules WHERE owner = 'acme'")
	race("overrides and exemptions", 60, func(db *pgrules.DB, i int) error {
		if i%3 == 0 {
			_, err := db.AddExemption(t.Context(), eve, pgrules.Exemption{Rule: rule, SubjectType: "user", SubjectValue: fmt.Sprintf("u%d", i)})
			return err
		}
		_, err := db.SetOverrides(t.Context(), eve, []pgrules.Override{{
			Rule: rule, Subject: headgate.Attributes{"tenant": "acme", "user": fmt.Sprintf("u%d", i)}, Limit: "20/minute",
		}})
		return err
	})
	exceptions := `SELECT (SELECT count(*) FROM rate_limit_overrides WHERE removed_at IS NULL)
		+ (SELECT count(*) FROM rate_limit_exemptions WHERE removed_at IS NULL)`
	if n := one[int](t, server, exceptions); n != small.Exceptions {
		t.Errorf("%d overrides and exemptions, want %d", n, small.Exceptions)
	}
	// Nodes have both distinct and common subjects.
	race("usage", 12, func(db *pgrules.DB, i int) error {
		rows := make([]meter.Row, 10)
		for j := range rows {
			user := fmt.Sprintf("u%d", 3*i+j)
			rows[j] = meter.Row{
				Day: "2026-03-06", Rule: rule, Subject: headgate.SubjectOf("acme", user), Units: 1,
				Attributes: headgate.Attributes{"tenant": "acme", "user": user},
			}
		}
		return db.AddUsage(t.Context(), rows)
	})
	usage := `SELECT count(*) || ' subjects, ' || sum(units) || ' units, others ' || sum(units) FILTER (WHERE subject = 'others')
		|| ' of ' || (min(attributes) FILTER (WHERE subject = 'others')) FROM usage_daily WHERE rule = '` + rule + `'`
	got := one[string](t, server, usage)
	t.Log(got)
	if !strings.HasPrefix(got, "31 subjects, 120 units, others ") || !strings.HasSuffix(got, ` of {"tenant":"acme"}`) {
		t.Error(got)
	}
}

// Existing exceptions can be changed and replaced when the quota is reached. A batch is accepted as a whole or not at all.
func TestQuotaOfExceptions(t *testing.T) {
	t.Parallel()
	db, server := newDB(t)
	db.SetQuotas(small)
	put(t, db, document("ours", "10/minute"))
	if _, err := db.Publish(t.Context(), eve, pgrules.Change{Edits: []pgrules.Edit{own(t, "a", "")}}); err != nil {
		t.Fatal(err)
	}
	set := func(who pgrules.Who, from, to int, limit string) error {
		var all []pgrules.Override
		for i := from; i < to; i++ {
			subject := headgate.Attributes{"tenant": "acme", "user": strconv.Itoa(i)}
			all = append(all, pgrules.Override{Rule: "a", Subject: subject, Limit: limit})
		}
		_, err := db.SetOverrides(t.Context(), who, all)
		return err
	}
	wantQuota(t, set(eve, 0, 21, "20/minute"), "has 0 overrides and exemptions", "would have 21", "at most 20", "tenants.max_exceptions")
	if n := one[int](t, server, "SELECT count(*) FROM rate_limit_overrides"); n != 0 {
		t.Errorf("%d overrides of a rejected batch", n)
	}
	for _, err := range []error{set(eve, 0, 20, "20/minute"), set(eve, 0, 20, "30/minute"), set(ann, 20, 25, "20/minute"), set(eve, 5, 25, "40/minute")} {
		if err != nil {
			t.Error(err)
		}
	}
	_, err := db.AddExemption(t.Context(), eve, pgrules.Exemption{Rule: "a", SubjectType: "user", SubjectValue: "ann"})
	wantQuota(t, err, "has 25 overrides and exemptions", "would have 26")
}
