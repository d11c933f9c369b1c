package adminapi

import (
	"fmt"
	"strings"
	"testing"
)

// Many rules are one version, or none.
func TestPublish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, acme, document("theirs", "1/s"))
	const flat = `{"name": "b", "scope": "global", "maxRequests": 5, "windowSeconds": 1}`
	all := fmt.Sprintf(`"rules": [%s, %s]`, document("a", "10/minute"), flat)
	dry := w.ask(t, editor, "POST /versions", `{`+all+`, "dryRun": true}`).want(200)
	dry.has("version=1", "dryRun=true", "changes.entries.*.change=added added")
	if !strings.Contains(dry.texts("changes.entries", "name"), "a b") {
		t.Errorf("%s", dry.Body)
	}
	if got := w.ask(t, viewer, "GET /rules", "").texts("rules", "name"); got != "theirs" {
		t.Errorf("a dry run has written %s", got)
	}
	w.ask(t, editor, "POST /versions", `{`+all+`, "base": 1, "comment": "the first"}`).want(200).
		has("version=2", "changes.effects.tighter=2")
	w.ask(t, editor, "POST /versions", `{`+all+`}`).want(200).has("version=2", "changes.entries=[]")
	w.ask(t, editor, "POST /versions", `{`+all+`, "base": 1}`).says(409, "the rules are at version 2, not 1")
	w.ask(t, editor, "POST /versions", `{"rules": [`+document("theirs", "9/s")+`]}`).says(422, "another owner")

	// What is not named is disabled, but for what tenants have made.
	prune := fmt.Sprintf(`{"rules": [%s], "prune": true, "mode": "shadow"}`, document("a", "20/minute"))
	w.ask(t, editor, "POST /versions", prune).want(200).
		has("changes.entries.*.change=changed changed removed", "changes.entries.*.name=of all rules a b")
	w.ask(t, viewer, "GET /versions/3", "").want(200).has("mode=shadow", "actor=ann", "rules.*.name=theirs a")
	list := w.ask(t, viewer, "GET /versions?limit=2", "").want(200)
	list.has("versions.1.comment=the first", "versions.1.changed=2", "versions.*.version=3 2")
	w.ask(t, viewer, "GET /versions?cursor="+list.text("next"), "").want(200).has("versions.*.version=1")
	diff := w.ask(t, viewer, "GET /versions/2/diff/3", "").want(200)
	diff.has("old.path=version 2", "entries.*.name=of all rules a b")
	if !strings.Contains(diff.text("entries.1.changes.0.new"), "20/minute") {
		t.Errorf("%s", diff.Body)
	}
	w.ask(t, editor, "POST /versions/2/rollback", "").want(200).
		has("version=4", "changes.entries.*.change=changed changed added")
	w.ask(t, viewer, "GET /versions/2/diff/4", "").has("entries=[]")
	w.ask(t, editor, "POST /versions/2/rollback", `{"comment": "once more"}`).want(200)
	w.ask(t, editor, "POST /versions/99/rollback", "").says(404, "version 99")
	w.ask(t, viewer, "GET /versions/99", "").says(404, "version 99")
	w.ask(t, viewer, "GET /versions/2/diff/99", "").says(404, "version 99")
	// The switch for everything.
	w.ask(t, editor, "POST /versions", `{"mode": "off"}`).want(200).has("version=5")
}

// Problems say where they are in the whole body.
func TestPublishProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := `{"comment": "{}", "rules": [
  {"id": "a", "by": ["user"], "limit": "1/s"}, {"id": "b", "bye": []},
  {"name": "c", "scope": "planet", "maxRequests": 1, "windowSeconds": 1}
]}`
	bad := w.ask(t, editor, "POST /versions", body)
	bad.says(422, "problems")
	bad.has("problems.0.rule=b")
	bad.has("problems.*.line=2 3", "problems.*.column=60 26")
	for body, want := range map[string]string{
		`{"mode": "loud"}`: "enforce, shadow or off",
		`{"rules": [` + document("a", "1/s") + `, ` + document("a", "2/s") + `]}`: "duplicate",
		`{"rules": [{"id": "x", "by": [], "limit": "1/day"}]}`:                    "deny all clients",
	} {
		w.ask(t, editor, "POST /versions", body).says(422, want)
	}
	w.ask(t, editor, "POST /versions", `{"rules": {}}`).says(400, "send {")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("ours", "1/s"))
	w.create(t, acme, document("theirs", "1/s"))
	w.ask(t, viewer, "POST /validate", document("ours", "2/s")).want(200).
		has("valid=true", "changes.entries.0.changes.0.effect=looser", "problems=[]")
	w.ask(t, viewer, "POST /validate", `{"rules": [`+document("new", "2/s")+`], "prune": true}`).want(200).
		has("changes.entries.*.change=removed added")
	bad := w.ask(t, viewer, "POST /validate", `{"id": "a", "by": ["user"], "limit": "10/minuet"}`).want(200)
	bad.has("valid=false", "changes=")
	if bad.text("problems.0.column") == "0" {
		t.Errorf("%s", bad.Body)
	}
	harm := w.ask(t, viewer, "POST /validate", `{"id": "x", "by": [], "limit": "1/day"}`).want(200)
	harm.has("valid=false")
	if !strings.Contains(harm.text("problems.0.problem"), "deny all clients") {
		t.Errorf("%s", harm.Body)
	}
	// A tenant is told of its own rules only.
	w.ask(t, "viewer.acme", "POST /validate", document("theirs", "2/s")).want(200).
		has("valid=true", "changes.old.rules=1")
	w.ask(t, "viewer.acme", "POST /validate", document("ours", "2/s")).want(200).has("valid=false")
	w.ask(t, "viewer.acme", "POST /validate", `{"rules": [], "prune": true}`).says(403, "leave them out")
	if version, _, _, _ := w.db.CurrentState(t.Context()); version != 2 {
		t.Errorf("version %d", version)
	}
}
