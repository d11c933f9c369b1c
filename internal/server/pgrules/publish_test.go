package pgrules_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/meter"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

var ann = pgrules.Who{Name: "ann", Comment: "because"}

func define(t *testing.T, text string) *pgrules.Definition {
	t.Helper()
	d, err := pgrules.Define([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// document returns a document with one rule.
func document(id, limit string) string {
	return fmt.Sprintf(`{"id": %q, "by": ["user"], "limit": %q}`, id, limit)
}

func publish(t *testing.T, db *pgrules.DB, edits ...pgrules.Edit) (pgrules.Outcome, error) {
	t.Helper()
	return db.Publish(t.Context(), ann, pgrules.Change{Edits: edits})
}

// put publishes one rule, and returns the version.
func put(t *testing.T, db *pgrules.DB, text string) int64 {
	t.Helper()
	d := define(t, text)
	outcome, err := publish(t, db, pgrules.Edit{Name: d.Rule.ID, Put: d, Revision: pgrules.AnyRevision})
	if err != nil {
		t.Fatal(err)
	}
	return outcome.Version
}

// A rule in the flat form is stored unchanged.
func TestFlatRule(t *testing.T) {
	t.Parallel()
	db, _ := newDB(t)
	put(t, db, `{"name": "default_per_key", "scope": "global", "algorithm": "sliding_window_counter", "maxRequests": 100,
		"windowSeconds": 60, "priority": 10}`)
	r, err := db.Rule(t.Context(), "default_per_key")
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Flat; f.Scope != "global" || f.Algorithm != "sliding_window_counter" || f.MaxRequests != 100 || f.WindowSeconds != 60 ||
		f.Priority != 10 || !f.Enabled || f.TenantID != "" {
		t.Errorf("%+v", f)
	}
	if want := `{"id":"default_per_key","by":["client"],"limit":"100/minute","algorithm":"sliding_window","priority":10}`; string(r.Document) != want {
		t.Errorf("document %s\n    want %s", r.Document, want)
	}
	if byUUID, err := db.Rule(t.Context(), r.UUID); err != nil || byUUID.Name != r.Name {
		t.Errorf("by UUID: %+v, %v", byUUID, err)
	}
	if _, err := db.Rule(t.Context(), "other"); !errors.Is(err, pgrules.ErrNotFound) {
		t.Errorf("another: %v", err)
	}
}

// A rule that has only concurrency limits is stored without the columns of a rate, and so are overrides of it.
func TestConcurrencyLimit(t *testing.T) {
	t.Parallel()
	db, _ := newDB(t)
	put(t, db, `{"id": "exports", "by": ["tenant"], "limit": {"concurrent": 20, "lease": "1m"}, "tiers": {"pro": "50 concurrent"}}`)
	r, err := db.Rule(t.Context(), "exports")
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Flat; f.Algorithm != "concurrency" || f.MaxRequests != 0 || f.WindowSeconds != 0 || f.Scope != "tenant" {
		t.Errorf("%+v", f)
	}
	for _, limit := range []string{"30", "30 concurrent", `{"concurrent": 30, "lease": "1h"}`} {
		override := pgrules.Override{Rule: "exports", Subject: headgate.Attributes{"tenant": "acme"}, Limit: limit}
		if _, err := db.SetOverrides(t.Context(), ann, []pgrules.Override{override}); err != nil {
			t.Errorf("%s: %v", limit, err)
		}
	}
	put(t, db, `{"id": "both", "by": ["tenant"], "limit": "20 concurrent", "limits": {"rate": "10/minute"}}`)
	if r, err = db.Rule(t.Context(), "both"); err != nil || r.Algorithm != "token_bucket" || r.MaxRequests != 10 {
		t.Errorf("%+v, %v", r.Flat, err)
	}
}

// Of concurrent changes of a rule one succeeds, and the others get a conflict.
func TestConcurrentOperators(t *testing.T) {
	t.Parallel()
	db, _ := newDB(t)
	put(t, db, document("a", "10/minute"))
	before, err := db.Rule(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	const operators = 8
	var all sync.WaitGroup
	conflicts := make(chan error, operators)
	for i := range operators {
		all.Go(func() {
			d, err := pgrules.Define([]byte(document("a", fmt.Sprintf("%d/minute", 100+i))))
			if err == nil {
				_, err = publish(t, db, pgrules.Edit{Name: "a", Put: d, Revision: before.Revision})
			}
			if err != nil {
				conflicts <- err
			}
		})
	}
	all.Wait()
	close(conflicts)
	n := 0
	for err := range conflicts {
		if n++; !errors.Is(err, pgrules.ErrConflict) || !strings.Contains(err.Error(), "read it again") {
			t.Errorf("%v", err)
		}
	}
	if n != operators-1 {
		t.Errorf("%d of %d got a conflict", n, operators)
	}
	if version, _, _, err := db.CurrentState(t.Context()); version != 2 || err != nil {
		t.Errorf("version %d, %v", version, err)
	}
	// Changes of different rules do not conflict.
	for i := range operators {
		all.Go(func() {
			d, err := pgrules.Define([]byte(document(fmt.Sprintf("r%d", i), "5/minute")))
			if err == nil {
				_, err = publish(t, db, pgrules.Edit{Name: d.Rule.ID, Put: d})
			}
			if err != nil && !strings.Contains(err.Error(), "try again") {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Harmful changes are rejected as a whole.
func TestPublishRejectsHarmfulRules(t *testing.T) {
	t.Parallel()
	db, _ := newDB(t)
	put(t, db, document("a", "10/minute"))
	good := pgrules.Edit{Name: "good", Put: define(t, document("good", "1/second"))}
	for want, edits := range map[string][]pgrules.Edit{
		"no rule would remain":      {{Name: "a", Revision: pgrules.AnyRevision}},
		"deny all clients":          {good, {Name: "b", Put: define(t, `{"id": "b", "by": [], "limit": "1/day"}`)}},
		"not found":                 {good, {Name: "c", Revision: pgrules.AnyRevision}},
		"changed by another writer": {good, {Name: "a", Put: define(t, document("a", "1/second"))}},
		"duplicate":                 {good, good},
	} {
		if _, err := publish(t, db, edits...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if version, _, _, _ := db.CurrentState(t.Context()); version != 1 {
		t.Errorf("version %d", version)
	}
	// Limits that are merely low, or not enforced, are accepted.
	put(t, db, `{"id": "low", "by": ["ip"], "limit": "1/day"}`)
	put(t, db, `{"id": "shadow", "by": [], "limit": "1/day", "mode": "shadow"}`)
	put(t, db, `{"id": "known", "by": ["api_key"], "limit": "100/minute", "on_missing": "deny"}`)
}

// A rollback restores every byte, as a new version.
func TestRollback(t *testing.T) {
	t.Parallel()
	db, server := newDB(t)
	put(t, db, `{"id": "a", "by": ["user"], "limits": {"peak": "5/second", "day": {"quota": 1000, "calendar": "day"}}, "labels": {"team": "x"}}`)
	put(t, db, `{"name": "flat", "scope": "tenant", "algorithm": "sliding_window_log", "maxRequests": 7, "windowSeconds": 0.5}`)
	if err := sql(t, server, fmt.Sprintf(flatRule, "by-hand")); err != nil {
		t.Fatal(err)
	}
	then, err := db.RulesAt(t.Context(), 3)
	if err != nil || len(then) != 3 {
		t.Fatalf("%d rules, %v", len(then), err)
	}
	put(t, db, document("a", "10/minute"))
	put(t, db, document("new", "10/minute"))
	shadow := headgate.Shadow
	off := pgrules.Change{Edits: []pgrules.Edit{{Name: "flat", Revision: pgrules.AnyRevision}}, Mode: &shadow}
	if _, err := db.Publish(t.Context(), ann, off); err != nil {
		t.Fatal(err)
	}
	outcome, err := db.Rollback(t.Context(), pgrules.Who{Name: "bob"}, 3)
	if err != nil || outcome.Version != 7 || len(outcome.Before) != 3 || len(outcome.After) != 3 {
		t.Fatalf("%+v, %v", outcome, err)
	}
	now, err := db.RulesAt(t.Context(), outcome.Version)
	if err != nil || len(now) != len(then) {
		t.Fatalf("%d rules, %v", len(now), err)
	}
	for i := range now {
		if now[i].Name != then[i].Name || now[i].Flat != then[i].Flat || !bytes.Equal(now[i].Document, then[i].Document) {
			t.Errorf("%+v\nwas %+v", now[i], then[i])
		}
	}
	if _, _, mode, _ := db.CurrentState(t.Context()); mode != headgate.Enforce {
		t.Errorf("mode %s", mode)
	}
	versions, err := db.Versions(t.Context(), pgrules.Page{Limit: 2})
	if err != nil || len(versions) != 2 || versions[0].Number != 7 || versions[0].Actor != "bob" || versions[0].Changed != 3 ||
		versions[1].Comment != "because" {
		t.Errorf("%+v, %v", versions, err)
	}
	if again, err := db.Rollback(t.Context(), ann, 3); err != nil || again.Version != 7 {
		t.Errorf("again: version %d, %v", again.Version, err)
	}
	if _, err := db.Rollback(t.Context(), ann, 99); !errors.Is(err, pgrules.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	db, _ := newDB(t)
	put(t, db, `{"id": "a", "by": ["tenant", "client"], "limits": {"peak": "5/second", "day": {"quota": 1000, "calendar": "day"}}}`)
	subject := headgate.Attributes{"tenant": "acme", "user": "ann"}
	set := func(o pgrules.Override) (int64, error) {
		return db.SetOverrides(t.Context(), ann, []pgrules.Override{o})
	}
	good := pgrules.Override{Rule: "a", LimitName: "peak", Subject: subject, Limit: "50/second burst 5"}
	for i, want := range []int64{1, 0} {
		if n, err := set(good); n != want || err != nil {
			t.Errorf("%d. %d changed, %v", i, n, err)
		}
	}
	for want, change := range map[string]func(o *pgrules.Override){
		"not found":               func(o *pgrules.Override) { o.Rule = "b" },
		`no limit ""`:             func(o *pgrules.Override) { o.LimitName = "" },
		"subject: missing tenant": func(o *pgrules.Override) { o.Subject = headgate.Attributes{"user": "ann"} },
		"subject: unexpected ip":  func(o *pgrules.Override) { o.Subject = headgate.Attributes{"user": "ann", "tenant": "acme", "ip": "1"} },
		`"lots"`:                  func(o *pgrules.Override) { o.Limit = "lots" },
	} {
		o := good
		change(&o)
		if _, err := set(o); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "override 0: ") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	all, err := db.Overrides(t.Context(), pgrules.ExceptionFilter{Rule: "a", Tenant: "acme", Subject: subject}, pgrules.Page{Limit: 10})
	if err != nil || len(all) != 1 || all[0].Limit != good.Limit || all[0].CreatedBy != "ann" || all[0].Subject["tenant"] != "acme" {
		t.Fatalf("%+v, %v", all, err)
	}
	if err := db.RemoveOverride(t.Context(), ann, all[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := db.RemoveOverride(t.Context(), ann, all[0].ID); !errors.Is(err, pgrules.ErrNotFound) {
		t.Errorf("%v", err)
	}
	audit, err := db.Audit(t.Context(), "a", "", pgrules.Page{Limit: 10})
	if err != nil || len(audit) != 3 || audit[0].Object != "override" || audit[0].Action != "delete" || audit[0].Actor != "ann" {
		t.Errorf("%+v, %v", audit, err)
	}
}

func TestDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	db := open(t, server)
	server.Kill()
	if _, _, _, err := db.CurrentState(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "PostgreSQL at postgres://postgres@127.0.0.1") {
		t.Errorf("%v", err)
	}
}

// AddUsage sums the usage of nodes and batches. The attributes of a subject come from the first row that has them.
func TestUsageIsSummed(t *testing.T) {
	t.Parallel()
	db, server := newServer(t)
	subject := headgate.SubjectOf("tenant", "acme")
	attributes := headgate.Attributes{"tenant": "acme"}
	for _, row := range []meter.Row{
		{Day: "2026-03-06", Rule: "a", Subject: subject, Units: 4},
		{Day: "2026-03-06", Rule: "a", Subject: subject, Attributes: attributes, Units: 5, Denied: 2},
		{Day: "2026-03-07", Rule: "a", Subject: subject, Attributes: attributes, Units: -1},
		{Day: "2026-03-07", Rule: "b", Subject: subject, Attributes: attributes, Units: 1},
	} {
		if err := db.AddUsage(t.Context(), []meter.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	filter, page := pgrules.UsageFilter{First: "2026-03-01", Last: "2026-03-31", Rule: "a", Subject: attributes}, pgrules.Page{Limit: 1}
	want := []pgrules.Usage{
		{Day: "2026-03-06", Rule: "a", Subject: subject.String(), Attributes: attributes, Units: 9, Denied: 2},
		{Day: "2026-03-07", Rule: "a", Subject: subject.String(), Attributes: attributes, Units: -1},
	}
	for i := range want {
		got, err := db.Usage(t.Context(), filter, page)
		if err != nil || len(got) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		page.After, got[0].ID = got[0].ID, 0
		if !reflect.DeepEqual(got[0], want[i]) {
			t.Errorf("%+v, want %+v", got[0], want[i])
		}
	}
	if rest, err := db.Usage(t.Context(), filter, page); err != nil || len(rest) != 0 {
		t.Errorf("%+v, %v", rest, err)
	}
	server.Kill()
	if err := db.AddUsage(t.Context(), []meter.Row{{Day: "2026-03-06", Rule: "a", Subject: subject, Units: 1}}); err == nil {
		t.Error("no error without a database")
	}
	if err := db.AddUsage(t.Context(), []meter.Row{{Day: "2026-03-06", Rule: "a", Subject: subject, Units: 1}}); !errors.Is(err, meter.ErrNotWritten) {
		t.Errorf("unreachable database: %v", err)
	}
}
