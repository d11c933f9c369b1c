package pgrules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// sharing returns a document of a rule that charges the counters of another.
func sharing(id, counter string) string {
	return fmt.Sprintf(`{"id": %q, "match": {"path": "/reports"}, "counter": %q, "cost": 5}`, id, counter)
}

// edit returns an edit of a rule; an owner of "" is the operator.
func edit(t *testing.T, owner, text string) pgrules.Edit {
	t.Helper()
	d := define(t, text)
	d.Owner = owner
	return pgrules.Edit{Name: d.Rule.ID, Put: d, Revision: pgrules.AnyRevision}
}

func disable(name string) pgrules.Edit {
	return pgrules.Edit{Name: name, Revision: pgrules.AnyRevision}
}

// TestSharedCounters stores rules that charge the counters of another, and checks that no change leaves them without it.
func TestSharedCounters(t *testing.T) {
	t.Parallel()
	db, _ := newDB(t)
	rejected := func(want string, edits ...pgrules.Edit) {
		t.Helper()
		if _, err := publish(t, db, edits...); !errors.Is(err, pgrules.ErrRejected) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	const gone = `rule "reports" charges the counters of rule "units", which would not be in force: change or disable both together`
	put(t, db, document("other", "10/minute"))
	rejected(gone, edit(t, "", sharing("reports", "units")))
	outcome, err := publish(t, db, edit(t, "", sharing("reports", "units")), edit(t, "", document("units", "10/minute")))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := db.Rule(t.Context(), "reports")
	if want := `{"id":"reports","match":{"path":"/reports"},"counter":"units","cost":5}`; err != nil || string(stored.Document) != want || stored.MaxRequests != 0 {
		t.Errorf("%+v, document %s: %v", stored, stored.Document, err)
	}
	rejected(gone, disable("units"))
	rejected("cost: 5: must be at most 4", edit(t, "", document("units", "4/minute")))
	rejected("counts by path or method", edit(t, "", `{"id": "units", "by": ["path"], "limit": "10/minute"}`))
	rejected("charges the counters of rule", edit(t, "", sharing("units", "other")))
	if _, err := db.Publish(t.Context(), ann, pgrules.Change{Edits: []pgrules.Edit{edit(t, "", sharing("reports", "units"))}, Prune: true}); err == nil ||
		!strings.Contains(err.Error(), gone) {
		t.Errorf("pruned: %v", err)
	}
	if _, err := db.SetOverrides(t.Context(), ann, []pgrules.Override{{Rule: "reports", Subject: headgate.Attributes{"user": "ann"}, Limit: "9/minute"}}); err == nil ||
		!strings.Contains(err.Error(), `rule "reports" charges the counters of rule "units": write units`) {
		t.Errorf("override: %v", err)
	}
	if _, err := publish(t, db, disable("units"), disable("reports")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Rollback(t.Context(), ann, outcome.Version); err != nil {
		t.Fatal(err)
	}
	all, err := db.RulesAt(t.Context(), outcome.Version+2)
	if err != nil || len(all) != 3 {
		t.Errorf("%d rules: %v", len(all), err)
	}
}

// TestSharedCountersOfOwners checks that rules share counters only with rules of the same owner.
func TestSharedCountersOfOwners(t *testing.T) {
	t.Parallel()
	db, _ := newDB(t)
	put(t, db, document("ours", "10/minute"))
	if _, err := db.Publish(t.Context(), eve, pgrules.Change{Edits: []pgrules.Edit{
		own(t, "theirs", ""), edit(t, "acme", sharing("their-reports", "theirs")),
	}}); err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]pgrules.Edit{
		"a tenant of an operator":       edit(t, "acme", sharing("x", "ours")),
		"another tenant":                edit(t, "globex", sharing("x", "theirs")),
		"an operator of a tenant":       edit(t, "", sharing("x", "theirs")),
		"a rule of the tenant, changed": edit(t, "acme", sharing("their-reports", "ours")),
	} {
		if _, err := publish(t, db, e); !errors.Is(err, pgrules.ErrRejected) || !strings.Contains(err.Error(), "belongs to another owner: write by and limit instead") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
