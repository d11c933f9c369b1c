package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/ruledoc"
)

// world is an API with rules in PostgreSQL.
type world struct {
	api      *api
	db       *pgrules.DB
	limiter  *headgate.Limiter
	describe *description
}

// fakeAuthority accepts tokens of the form ROLE.TENANT or ROLE.TENANT.SUBJECT.
type fakeAuthority struct{}

func (fakeAuthority) Caller(_ context.Context, token string) (Caller, error) {
	role, tenant, ok := strings.Cut(token, ".")
	if !ok {
		return Caller{}, errUnknownToken
	}
	tenant, subject, _ := strings.Cut(tenant, ".")
	return Caller{"ann", Role(role), tenant, subject}, nil
}

var databases = testenv.SharedPostgres{Prepare: migrate}

func TestMain(m *testing.M) { os.Exit(databases.Run(m)) }

func migrate(t testing.TB, server *testenv.Postgres) {
	t.Helper()
	db, err := pgrules.Open(server.URL(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOn(t, databases.Database(t))
}

func worldOn(t *testing.T, server *testenv.Postgres) *world {
	t.Helper()
	db, err := pgrules.Open(server.URL(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	limiter, err := headgate.New(memstore.New(memstore.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := New(limiter, Options{Tokens: fakeAuthority{}, DB: db, Log: slog.New(slog.DiscardHandler)}).(*api)
	return &world{a, db, limiter, readDescription(t)}
}

// follow keeps the limiter in sync with the database.
func (w *world) follow(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	follower, err := w.db.Follow(ctx, pgrules.FollowOptions{
		Limiter: w.limiter, Node: "n1", Report: func(ruledoc.Event) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); follower.Wait() })
}

// reply is the response to a call.
type reply struct {
	*httptest.ResponseRecorder
	t    *testing.T
	what string
}

// call sends "POST /v1/…" with a body and a token, and checks the exchange against openapi.yaml. Headers come in pairs.
func (w *world) call(t *testing.T, as, what, body string, headers ...string) reply {
	t.Helper()
	method, target, _ := strings.Cut(what, " ")
	if strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "/v1/") {
		target = "/v1/rate-limit" + target
	}
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+as)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	w.api.ServeHTTP(recorder, r)
	w.describe.hold(t, r, body, recorder)
	return reply{recorder, t, as + ": " + what + " " + body}
}

// want checks the status.
func (r reply) want(status int) reply {
	r.t.Helper()
	if r.Code != status {
		r.t.Fatalf("%s\n%d, want %d: %s", r.what, r.Code, status, r.Body)
	}
	return r
}

// wantProblem checks the status, and that the detail contains some words.
func (r reply) wantProblem(status int, words ...string) {
	r.t.Helper()
	r.want(status)
	for _, w := range words {
		if detail := r.text("detail"); !strings.Contains(detail, w) {
			r.t.Errorf("%s\n%s\nwant %q", r.what, detail, w)
		}
	}
}

// at returns the value at a path such as rules.0.name, or nil if there is none.
func (r reply) at(path string) any {
	r.t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(r.Body.Bytes()))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		r.t.Fatalf("%s\n%s: %v", r.what, r.Body, err)
	}
	for key := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			var i int
			if _, err := fmt.Sscan(key, &i); err != nil || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

// has checks values, each written PATH=VALUE. PATH= means that there is no value.
func (r reply) has(values ...string) reply {
	r.t.Helper()
	for _, v := range values {
		path, want, _ := strings.Cut(v, "=")
		if got := r.text(path); got != want {
			r.t.Errorf("%s\n%s is %q, want %q: %s", r.what, path, got, want, r.Body)
		}
	}
	return r
}

// text returns the value at a path as text, or "" if there is none. The path rules.*.name returns those of all elements of a list.
func (r reply) text(path string) string {
	r.t.Helper()
	if list, rest, ok := strings.Cut(path, ".*."); ok {
		return r.texts(list, rest)
	}
	value := r.at(path)
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// texts returns the values under a path of all elements of a list.
func (r reply) texts(list, path string) string {
	r.t.Helper()
	var all []string
	elements, _ := r.at(list).([]any)
	for i := range elements {
		all = append(all, r.text(fmt.Sprintf("%s.%d.%s", list, i, path)))
	}
	return strings.Join(all, " ")
}

const (
	admin  = "admin."
	editor = "editor."
	viewer = "viewer."
	acme   = "editor.acme"
	globex = "editor.globex"
)

// document returns a document with one rule.
func document(id, limit string) string {
	return fmt.Sprintf(`{"id": %q, "by": ["user"], "limit": %q}`, id, limit)
}

// create creates rules.
func (w *world) create(t *testing.T, as string, documents ...string) {
	t.Helper()
	for _, d := range documents {
		w.call(t, as, "POST /rules", d).want(http.StatusCreated)
	}
}
