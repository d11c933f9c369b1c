package adminapi

import (
	"fmt"
	"strings"
	"testing"
)

// Many rules are published as one version, or not at all.
func TestPublish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, acme, document("theirs", "1/s"))
	const flat = `{"name": "b", "scope": "global", "maxRequests": 5, "windowSeconds": 1}`
	all := fmt.Sprintf(`"rules": [%s, %s]`, document("a", "10/minute"), flat)
	dry := w.call(t, editor, "POST /versions", `{`+all+`, "dryRun": true}`).want(200)
	dry.has("version=1", "dryRun=true", "changes.entries.*.change=added added")
	if !strings.Contains(dry.texts("changes.entries", "name"), "a b") {
		t.Errorf("%s", dry.Body)
	}
	if got := w.call(t, viewer, "GET /rules", "").texts("rules", "name"); got != "theirs" {
		t.Errorf("a dry run has written %s", got)
	}
	w.call(t, editor, "POST /versions", `{`+all+`, "base": 1, "comment": "the first"}`).want(200).
		has("version=2", "changes.effects.tighter=2")
	w.call(t, editor, "POST /versions", `{`+all+`}`).want(200).has("version=2", "changes.entries=[]")
	w.call(t, editor, "POST /versions", `{`+all+`, "base": 1}`).wantProblem(409, "the rules are at version 2, not 1")
	w.call(t, editor, "POST /versions", `{"rules": [`+document("theirs", "9/s")+`]}`).wantProblem(422, "another owner")

	// Prune disables all other rules, except those of tenants.
	prune := fmt.Sprintf(`{"rules": [%s], "prune": true, "mode": "shadow"}`, document("a", "20/minute"))
	w.call(t, editor, "POST /versions", prune).want(200).
		has("changes.entries.*.change=changed changed removed", "changes.entries.*.name=of all rules a b")
	w.call(t, viewer, "GET /versions/3", "").want(200).has("mode=shadow", "actor=ann", "rules.*.name=theirs a")
	list := w.call(t, viewer, "GET /versions?limit=2", "").want(200)
	list.has("versions.1.comment=the first", "versions.1.changed=2", "versions.*.version=3 2")
	w.call(t, viewer, "GET /versions?cursor="+list.text("next"), "").want(200).has("versions.*.version=1")
	diff := w.call(t, viewer, "GET /versions/2/diff/3", "").want(200)
	diff.has("old.path=version 2", "entries.*.name=of all rules a b")
	if !strings.Contains(diff.text("entries.1.changes.0.new"), "20/minute") {
		t.Errorf("%s", diff.Body)
	}
	w.call(t, editor, "POST /versions/2/rollback", "").want(200).
		has("version=4", "changes.entries.*.change=changed changed added")
	w.call(t, viewer, "GET /versions/2/diff/4", "").has("entries=[]")
	w.call(t, editor, "POST /versions/2/rollback", `{"comment": "once more"}`).want(200)
	w.call(t, editor, "POST /versions/99/rollback", "").wantProblem(404, "version 99")
	w.call(t, viewer, "GET /versions/99", "").wantProblem(404, "version 99")
	w.call(t, viewer, "GET /versions/2/diff/99", "").wantProblem(404, "version 99")
	// The mode switches all rules.
	w.call(t, editor, "POST /versions", `{"mode": "off"}`).want(200).has("version=5")
}

// Problems have their position in the whole body.
func TestPublishProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := `{"comment": "{}", "rules": [
  {"id": "a", "by": ["user"], "limit": "1/s"}, {"id": "b", "bye": []},
  {"name": "c", "scope": "planet", "maxRequests": 1, "windowSeconds": 1}
]}`
	bad := w.call(t, editor, "POST /versions", body)
	bad.wantProblem(422, "problems")
	bad.has("problems.0.rule=b")
	bad.has("problems.*.line=2 3", "problems.*.column=60 26")
	for body, want := range map[string]string{
		`{"mode": "loud"}`: "enforce, shadow or off",
		`{"rules": [` + document("a", "1/s") + `, ` + document("a", "2/s") + `]}`: "duplicate",
		`{"rules": [{"id": "x", "by": [], "limit": "1/day"}]}`:                    "deny all clients",
	} {
		w.call(t, editor, "POST /versions", body).wantProblem(422, want)
	}
	w.call(t, editor, "POST /versions", `{"rules": {}}`).wantProblem(400, "send {")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("ours", "1/s"))
	w.create(t, acme, document("theirs", "1/s"))
	w.call(t, viewer, "POST /validate", document("ours", "2/s")).want(200).
		has("valid=true", "changes.entries.0.changes.0.effect=looser", "problems=[]")
	w.call(t, viewer, "POST /validate", `{"rules": [`+document("new", "2/s")+`], "prune": true}`).want(200).
		has("changes.entries.*.change=removed added")
	bad := w.call(t, viewer, "POST /validate", `{"id": "a", "by": ["user"], "limit": "10/minuet"}`).want(200)
	bad.has("valid=false", "changes=")
	if bad.text("problems.0.column") == "0" {
		t.Errorf("%s", bad.Body)
	}
	harm := w.call(t, viewer, "POST /validate", `{"id": "x", "by": [], "limit": "1/day"}`).want(200)
	harm.has("valid=false")
	if !strings.Contains(harm.text("problems.0.problem"), "deny all clients") {
		t.Errorf("%s", harm.Body)
	}
	// A tenant sees only changes of its own rules.
	w.call(t, "viewer.acme", "POST /validate", document("theirs", "2/s")).want(200).
		has("valid=true", "changes.old.rules=1")
	w.call(t, "viewer.acme", "POST /validate", document("ours", "2/s")).want(200).has("valid=false")
	w.call(t, "viewer.acme", "POST /validate", `{"rules": [], "prune": true}`).wantProblem(403, "omit them")
	if version, _, _, _ := w.db.CurrentState(t.Context()); version != 2 {
		t.Errorf("version %d", version)
	}
}
