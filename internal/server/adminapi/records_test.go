package adminapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, `{"id": "quota", "by": ["tenant"], "limit": "1/s"}`)
	w.create(t, acme, document("theirs", "1/s"))
	w.call(t, editor, "POST /overrides", `{"rule": "quota", "subject": {"tenant": "acme"}, "limit": "2/s"}`).want(201)
	w.call(t, editor, "POST /overrides", `{"rule": "quota", "subject": {"tenant": "globex"}, "limit": "2/s"}`).want(201)
	w.call(t, acme, "POST /rules/theirs/exemptions", `{"subjectType": "user", "subjectValue": "ann"}`).want(201)
	w.call(t, acme, "DELETE /rules/theirs", "").want(204)
	all := w.call(t, viewer, "GET /audit", "").want(200)
	if got := all.texts("entries", "object"); got != "rule exemption override override rule rule" {
		t.Error(got)
	}
	all.has("entries.0.action=disable", "entries.0.rule=theirs", "entries.0.old.enabled=true",
		"entries.0.new.enabled=false", "entries.0.version=3", "entries.0.actor=ann")
	got := w.call(t, viewer, "GET /audit?rule=quota&limit=2", "")
	got.has("entries.*.object=override override")
	if got.at("next") == nil {
		t.Errorf("%s", got.Body)
	}
	got = w.call(t, "viewer.acme", "GET /audit", "")
	got.has("entries.*.object=rule exemption override rule")
	if strings.Contains(got.Body.String(), "globex") {
		t.Errorf("%s", got.Body)
	}
	w.call(t, viewer, "GET /audit?rule=x", "").wantProblem(404, `rule "x"`)
}

func TestNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("a", "1/s"))
	w.follow(t)
	current := func() bool {
		nodes := w.call(t, viewer, "GET /nodes", "").want(200)
		return nodes.text("nodes.*.node") == "n1" && nodes.text("nodes.*.behind") == "false" &&
			nodes.text("nodes.0.version") == nodes.text("version")
	}
	wait(t, "the node has reported", current)
	w.create(t, editor, document("b", "1/s"))
	wait(t, "the node has followed", func() bool { return current() && w.call(t, viewer, "GET /nodes", "").text("version") == "2" })
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long: %s", what)
		}
	}
}

// A token is valid until it is revoked, is shown once, and is not stored in the database.
func TestStoredTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.call(t, admin, "POST /tokens", `{"name": "ci", "role": "editor", "tenant": "acme",
		"expiresAt": "2099-01-01T00:00:00Z"}`).want(201)
	secret, id := made.text("token"), made.text("tokenId")
	list := w.call(t, admin, "GET /tokens", "").want(200)
	if !strings.HasPrefix(secret, tokenPrefix) || list.texts("tokens", "name") != "ci" || strings.Contains(list.Body.String(), secret) ||
		list.text("tokens.0.createdBy") != "ann" {
		t.Errorf("%s %s", made.Body, list.Body)
	}
	lookup := Lookup(func(ctx context.Context, sum [sha256.Size]byte) (Caller, bool, error) {
		token, err := w.db.TokenOf(ctx, sum)
		if errors.Is(err, pgrules.ErrNotFound) {
			return Caller{}, false, nil
		}
		return Caller{token.Name, Role(token.Role), token.Tenant, token.Subject}, true, err
	})
	if by, err := lookup.Caller(t.Context(), secret); err != nil || by != (Caller{"ci", Editor, "acme", ""}) {
		t.Errorf("%+v, %v", by, err)
	}
	for body, want := range map[string]string{
		`{"name": "a b"}`:                                    "invalid token name",
		`{"name": "a", "role": "root"}`:                      "viewer, editor or admin",
		`{"name": "a", "expiresAt": "2020-01-01T00:00:00Z"}`: "in the past",
	} {
		w.call(t, admin, "POST /tokens", body).wantProblem(422, want)
	}
	w.call(t, admin, "DELETE /tokens/"+id, "").want(204)
	w.call(t, admin, "DELETE /tokens/"+id, "").wantProblem(404, "token "+id)
	if by, err := lookup.Caller(t.Context(), secret); err == nil {
		t.Errorf("a revoked token is %+v", by)
	}
	if list := w.call(t, admin, "GET /tokens", ""); list.at("tokens.0.revokedAt") == nil {
		t.Errorf("%s", list.Body)
	}
}

// Without the database calls fail with a 503, which does not show tenants the address of the database.
func TestDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	w := worldOn(t, server)
	server.Kill()
	for as, want := range map[string]string{
		viewer: "PostgreSQL at postgres://postgres@127.0.0.1", acme: "the database is unavailable: try again",
	} {
		r := httptest.NewRequest(http.MethodGet, RulesPath, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+as)
		got := httptest.NewRecorder()
		w.api.ServeHTTP(got, r)
		if got.Code != 503 || got.Header().Get("Retry-After") != "5" || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	}
}
