package adminapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/redisstore"
)

var discard = slog.New(slog.DiscardHandler)

func newLimiter(t *testing.T, store headgate.Store) *headgate.Limiter {
	t.Helper()
	login := headgate.Match{Path: "/login", Method: "POST"}
	limiter, err := headgate.New(store,
		headgate.Rule{ID: "login", Match: login, By: []string{"ip"}, Limit: headgate.PerMinute(2)},
		headgate.Rule{ID: "all", By: []string{}, Limit: headgate.PerMinute(1000)})
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// writeTokens makes a token for each name, and a file with their lines.
func writeTokens(t testing.TB, names ...string) (file string, tokens []string) {
	t.Helper()
	text := "# tokens\n\n"
	for _, name := range names {
		token, line, err := adminapi.NewToken(name)
		if err != nil {
			t.Fatal(err)
		}
		tokens, text = append(tokens, token), text+line+"\n"
	}
	file = filepath.Join(t.TempDir(), "tokens")
	writeFile(t, file, text)
	return file, tokens
}

func writeFile(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newAPI returns an API with counters in memory.
func newAPI(t *testing.T, tokens adminapi.Authority, log *slog.Logger) http.Handler {
	t.Helper()
	return adminapi.New(newLimiter(t, memstore.New(memstore.Options{})), adminapi.Options{Tokens: tokens, Log: log})
}

func readTokens(t *testing.T, file string, log *slog.Logger) *adminapi.Tokens {
	t.Helper()
	tokens, err := adminapi.ReadTokens(file, log)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func post(body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, adminapi.ExplainPath, strings.NewReader(body))
}

func withToken(r *http.Request, token string) *http.Request {
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.Host = "localhost" // not example.com, the default of package httptest
	h.ServeHTTP(w, r)
	return w
}

// decode decodes the body as a report, without unknown fields.
func decode(t *testing.T, w *httptest.ResponseRecorder) *explain.Report {
	t.Helper()
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	var r explain.Report
	if err := decoder.Decode(&r); err != nil || w.Code != http.StatusOK ||
		w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("status %d, %v: %v", w.Code, w.Header(), err)
	}
	return &r
}

const question = `{
	"attributes": {"method": "POST", "path": "/login", "ip": "192.0.2.1", "user": "ann", "tier": "x"},
	"cost": 2
}`

func TestExplain(t *testing.T) {
	t.Parallel()
	limiter := newLimiter(t, memstore.New(memstore.Options{}))
	h := adminapi.New(limiter, adminapi.Options{Open: true, RulesFrom: []string{"rules/"}, Log: discard})
	for range 3 { // nothing is charged
		r := decode(t, serve(h, post(question)))
		if !r.Allowed || r.Version != 1 || r.Cost != 2 || len(r.Limits) != 2 || r.Limits[0].Cost != 2 ||
			r.Limits[0].Remaining != 2 || r.Time.IsZero() || r.RulesVersion != limiter.Rules().Version() || r.Rules[0] != "rules/" || r.Redis != "" || r.Limits[0].Key != "" {
			t.Fatalf("%+v", r)
		}
		if len(r.Notes) != 1 || r.Notes[0] != "no rule uses tier and user" {
			t.Errorf("notes %q", r.Notes)
		}
	}
	if err := limiter.Exceptions().Exempt(headgate.Exemption{Attribute: "user", Value: "ann"}); err != nil {
		t.Fatal(err)
	}
	if r := decode(t, serve(h, post(question))); len(r.Limits) != 0 || r.Notes[0] != "no rule uses tier" ||
		r.Summary != "allowed: no rule applies: exempt by user" {
		t.Errorf("%+v", r)
	}
	if r := decode(t, serve(h, post(`{}`))); !r.Allowed || r.Cost != 1 || r.Rules == nil || len(r.NotApplied) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestExplainAll(t *testing.T) {
	t.Parallel()
	var rules []headgate.Rule
	for _, c := range "abcdefghijklmno" {
		match := headgate.Match{Path: "/" + string(c)}
		rules = append(rules, headgate.Rule{ID: string(c), Match: match, By: []string{}, Limit: headgate.PerMinute(1)})
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	h := adminapi.New(limiter, adminapi.Options{Open: true, Log: discard})
	if r := decode(t, serve(h, post(`{"all": false}`))); len(r.NotApplied) != 10 || r.NotShown != 5 {
		t.Errorf("%d and %d others", len(r.NotApplied), r.NotShown)
	}
	if r := decode(t, serve(h, post(`{"all": true}`))); len(r.NotApplied) != 15 || r.NotShown != 0 {
		t.Errorf("%d and %d others", len(r.NotApplied), r.NotShown)
	}
}

func TestExplainRedis(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	address := "redis://" + server.Addr()
	store, err := redisstore.New(redisstore.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	limiter := newLimiter(t, store)
	h := adminapi.New(limiter, adminapi.Options{Open: true, Redis: address, Key: store.Key, Log: discard})
	login := headgate.Attributes{"method": "POST", "path": "/login", "ip": "192.0.2.1"}
	for range 2 {
		if d, _ := limiter.Check(t.Context(), headgate.Request{Attributes: login}); d.Path != headgate.PathStore {
			t.Fatal(d.Path)
		}
	}
	r := decode(t, serve(h, post(question)))
	if r.Allowed || *r.RetryAfter <= 0 || r.Redis != address || r.Limits[0].Rule != "login" || r.Limits[0].Used != 2 {
		t.Errorf("%+v", r)
	}
	if exists := server.Must(t, "EXISTS", r.Limits[0].Key); exists != int64(1) {
		t.Errorf("no counter at %s", r.Limits[0].Key)
	}
	server.Kill()
	w := serve(h, post(question))
	detail := checkProblem(t, w, http.StatusServiceUnavailable)
	if !strings.HasPrefix(detail, address+": redisstore: store unavailable: ") {
		t.Error(detail)
	}
}

// unavailableStore is a store that always fails.
type unavailableStore struct{}

func (unavailableStore) Shard(headgate.Subject) int { return 0 }

func (unavailableStore) Take(ctx context.Context, _ []headgate.Charge, results []headgate.Result) error {
	err := errors.Join(headgate.ErrUnavailable, ctx.Err())
	for i := range results {
		results[i].Err = err
	}
	return err
}

// checkProblem checks the status of a problem and returns its detail.
func checkProblem(t *testing.T, w *httptest.ResponseRecorder, status int) string {
	t.Helper()
	var p struct {
		Title, Detail string
		Status        int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != status || p.Status != status ||
		p.Title != http.StatusText(status) || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Fatalf("status %d, not %d: %v %s", w.Code, status, w.Header(), w.Body)
	}
	return p.Detail
}

func TestProblems(t *testing.T) {
	t.Parallel()
	const example = `: send {"attributes": {"method": "POST", "path": "/login", "ip": "192.0.2.1"}, ` +
		`"cost": 1, "all": false}`
	h := adminapi.New(newLimiter(t, unavailableStore{}), adminapi.Options{Open: true, Log: discard})
	for _, c := range []struct {
		request *http.Request
		status  int
		detail  string
	}{
		{post(question), 503, "the store: store unavailable"},
		{post(""), 400, "invalid body: EOF" + example},
		{post(`{"attribute": {}}`), 400, `invalid body: json: unknown field "attribute"` + example},
		{post(`{} {}`), 400, "invalid body: unexpected data after the JSON value" + example},
		{post("null"), 400, "invalid body: null" + example},
		{post("{\"attributes\": {\"user\": \"\xff\"}}"), 400, "invalid body: not UTF-8" + example},
		{post(`{"cost": -1}`), 400, "cost -1: must be 1 to 1000000000, or omitted for 1"},
		{post(`{"attributes": {"": "x"}}`), 400, "attributes: name of 0 bytes: must be 1 to 256"},
		{post(`{"attributes": {"x": "` + strings.Repeat("x", 64<<10) + `"}}`), 413, "body: larger than 65536 bytes"},
		{httptest.NewRequest(http.MethodGet, "/v1/explain", http.NoBody), 405, "method GET not allowed: /v1/explain accepts POST"},
		{httptest.NewRequest(http.MethodPost, "/v1/explain/x", http.NoBody), 404, "path not found: GET /v1/openapi.yaml describes all paths"},
		{httptest.NewRequest(http.MethodGet, "/", http.NoBody), 404, "path not found: GET /v1/openapi.yaml describes all paths"},
	} {
		w := serve(h, c.request)
		if detail := checkProblem(t, w, c.status); detail != c.detail {
			t.Errorf("%s %s: %s", c.request.Method, c.request.URL, detail)
		}
		if (w.Header().Get("Allow") == http.MethodPost) != (c.status == http.StatusMethodNotAllowed) {
			t.Errorf("%s %s: Allow: %s", c.request.Method, c.request.URL, w.Header().Get("Allow"))
		}
	}
}

// TestBodyIsBounded checks that an endless body is rejected.
func TestBodyIsBounded(t *testing.T) {
	t.Parallel()
	h := adminapi.New(newLimiter(t, unavailableStore{}), adminapi.Options{Open: true, Log: discard})
	body := io.MultiReader(strings.NewReader(`{"attributes": {"x": "`), spaces{})
	r := httptest.NewRequest(http.MethodPost, adminapi.ExplainPath, body)
	checkProblem(t, serve(h, r), http.StatusRequestEntityTooLarge)
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
