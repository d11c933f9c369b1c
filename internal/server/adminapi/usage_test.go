package adminapi

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/meter"
)

// check charges a request several times.
func (w *world) check(t *testing.T, times int, attributes headgate.Attributes) {
	t.Helper()
	for range times {
		if _, err := w.limiter.Check(t.Context(), headgate.Request{Attributes: attributes}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, `{"id": "keys", "by": ["client"], "limit": "10/hour", "algorithm": "fixed_window"}`,
		`{"id": "many", "match": {"path": "/many"}, "by": ["tenant", "user"], "cost": 2,
			"limits": {"peak": "100/hour", "month": {"quota": 4, "calendar": "month"}}}`,
		`{"id": "shared", "match": {"path": "/shared"}, "counter": "keys", "cost": 5}`)
	w.call(t, editor, "POST /rules/keys/exemptions", `{"subjectType": "user", "subjectValue": "free"}`).want(201)
	w.follow(t)
	key := headgate.HashKey("secret")
	w.check(t, 3, headgate.Attributes{"api_key": key})
	w.check(t, 1, headgate.Attributes{"tenant": "acme", "user": "ann", "path": "/many"})
	id := w.call(t, viewer, "GET /rules/keys", "").text("ruleId")
	for _, query := range []string{
		"subjectType=api_key&subjectId=" + key + "&ruleId=keys", "subjectType=api_key&subjectId=" + key + "&ruleId=" + id,
		"subjectType=api_key&subjectId=secret&ruleId=keys", "subjectType=api_key&subjectId=secret&ruleId=keys&tier=free",
	} {
		got := w.call(t, viewer, "GET /usage?"+query, "").want(200)
		at, err := time.Parse(time.RFC3339, got.text("resetAt"))
		got.has("limit=10", "remaining=7", "windowSeconds=3600", "limited=true")
		if err != nil || time.Until(at) < 59*time.Minute || time.Until(at) > time.Hour || !strings.Contains(query, got.text("ruleId")) {
			t.Errorf("%s: %s", query, got.Body)
		}
	}
	many := w.call(t, viewer, "GET /usage?subjectType=user&subjectId=ann&tenant=acme&ruleId=many", "").want(200)
	many.has("name=month", "calendar=month", "limits.*.name=month peak", "limits.*.remaining=2 98", "windowSeconds=")
	w.call(t, viewer, "GET /usage?subjectType=user&subjectId=free&ruleId=keys", "").want(200).
		has("limited=false", "limit=")
	for query, want := range map[string]string{
		"": "send subjectType=", "?subjectType=user&subjectId=ann": "send subjectType=",
		"?subjectType=user&subjectId=ann&ruleId=many":                     "subject: missing tenant",
		"?subjectType=user&subjectId=ann&ruleId=many&tenant=acme&ip=1::2": "unexpected ip",
	} {
		w.call(t, viewer, "GET /usage"+query, "").wantProblem(400, want)
	}
	w.call(t, viewer, "GET /usage?subjectType=user&subjectId=ann&ruleId=none", "").wantProblem(404, `rule "none": not in force`)
	w.call(t, viewer, "GET /usage?subjectType=user&subjectId=ann&ruleId=shared", "").wantProblem(404, `rule "shared": has no counters of its own`)
	w.call(t, editor, "POST /rules/shared/reset", `{"subject": {"user": "ann"}}`).wantProblem(404, `rule "shared": has no counters of its own`)

	// Tenants see only their own usage.
	const ann = "?subjectType=user&subjectId=ann&ruleId=many"
	for as, want := range map[string]string{acme: "2", globex: "4"} {
		if got := w.call(t, as, "GET /usage"+ann, "").want(200); got.text("remaining") != want {
			t.Errorf("%s: %s", as, got.Body)
		}
	}
	w.call(t, globex, "GET /usage"+ann+"&tenant=acme", "").wantProblem(404, "ann may not read those of others")
	w.call(t, globex, "GET /usage?subjectType=user&subjectId=ann&ruleId=keys", "").wantProblem(404, "ann may not read those of others")
}

func TestOwnUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, `{"id": "quota", "by": ["tenant"], "limit": "10/hour"}`,
		`{"id": "other", "by": ["tenant", "user"], "limit": "10/hour"}`,
		`{"id": "globex-only", "match": {"tenant": "globex"}, "by": ["tenant"], "limit": "10/hour"}`)
	w.create(t, acme, `{"id": "sub", "match": {"path": "/search"}, "by": ["tenant"], "limit": "5/hour"}`)
	w.follow(t)
	w.check(t, 3, headgate.Attributes{"tenant": "acme", "user": "ann"})
	for range 2 { // nothing is charged
		w.call(t, "viewer.acme", "GET /usage/me", "").want(200).
			has("tenant=acme", "usage.*.rule=quota sub", "usage.*.remaining=7 5")
	}
}

// Each kind of subject sees only its own usage, in the list and as the limit that would deny first.
func TestOwnUsageOfSubjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, `{"id": "clients", "by": ["client"], "limit": "10/hour", "algorithm": "fixed_window"}`,
		`{"id": "users", "by": ["user"], "limit": "100/hour"}`, `{"id": "keys", "by": ["api_key"], "limit": "20/hour"}`,
		`{"id": "both", "by": ["tenant", "user"], "limit": "50/hour"}`, `{"id": "quota", "by": ["tenant"], "limit": "40/hour"}`,
		`{"id": "ips", "by": ["ip"], "limit": "1000/hour"}`, `{"id": "bobs", "match": {"user": "bob"}, "by": ["user"], "limit": "5/hour"}`,
		`{"id": "secret", "by": ["user"], "limit": "500/hour", "expose": false}`, `{"id": "trial", "by": ["user"], "limit": "600/hour", "mode": "shadow"}`)
	w.follow(t)
	key := headgate.HashKey("secret")
	w.check(t, 2, headgate.Attributes{"tenant": "acme", "user": "ann", "ip": "192.0.2.1"})
	w.check(t, 3, headgate.Attributes{"user": "bob"})
	w.check(t, 4, headgate.Attributes{"api_key": key})
	for as, want := range map[string][]string{
		"self.":                {"subject.user=ann", "usage.*.rule=clients users", "usage.*.remaining=8 98", "ruleId=clients", "remaining=8", "limit=10", "windowSeconds=3600"},
		"viewer.":              {"subject.user=ann", "usage.*.rule=clients users secret trial", "tenant="},
		"self..user=bob":       {"subject.user=bob", "usage.*.rule=clients users bobs", "usage.*.remaining=7 97 2", "ruleId=bobs", "limit=5"},
		"self..user=carol":     {"usage.*.remaining=10 100", "ruleId=clients"},
		"self..api_key=" + key: {"subject.api_key=" + key, "usage.*.rule=clients keys", "usage.*.remaining=6 16", "ruleId=clients"},
		"viewer.acme":          {"tenant=acme", "subject.tenant=acme", "subject.user=", "usage.*.rule=quota", "remaining=38", "ruleId=quota"},
		"self.acme.user=ann":   {"tenant=acme", "subject.user=ann", "usage.*.rule=clients users both quota", "usage.*.remaining=8 98 48 38"},
		"self.acme":            {"tenant=acme", "subject.user=ann", "usage.*.rule=clients users both quota"},
	} {
		w.call(t, as, "GET /usage/me", "").want(200).has(want...)
	}
	one := w.call(t, "self..user=bob", "GET /usage/me?ruleId=users", "").want(200)
	one.has("ruleId=users", "limit=100", "remaining=97", "windowSeconds=3600", "usage.*.rule=users")
	if _, err := time.Parse(time.RFC3339, one.text("resetAt")); err != nil {
		t.Error(err)
	}
	for _, rule := range []string{"ips", "quota", "none", "secret", "trial"} {
		w.call(t, "self..user=bob", "GET /usage/me?ruleId="+rule, "").wantProblem(404, "not in force")
	}
	// A token of a subject is valid for no other endpoint.
	for i := range routes {
		rt := &routes[i]
		if rejection := rt.authorize(Caller{Name: "ann", Role: Self, Subject: "user=ann"}); (rejection == nil) != (rt.path == "/v1/rate-limit/usage/me") {
			t.Errorf("%s: %v", rt, rejection)
		}
	}
}

// Tokens of subjects can be created over the API.
func TestTokensOfSubjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.call(t, admin, "POST /tokens", `{"name": "app", "role": "self", "subject": "api_key=secret"}`).want(201)
	made.has("subject=api_key="+headgate.HashKey("secret"), "role=self")
	stored, err := w.db.TokenOf(t.Context(), sha256.Sum256([]byte(made.text("token"))))
	if err != nil || stored.Subject != "api_key="+headgate.HashKey("secret") || stored.Role != "self" {
		t.Errorf("%+v, %v", stored, err)
	}
	w.call(t, admin, "POST /tokens", `{"name": "bob", "role": "self", "subject": "user=bob", "tenant": "acme"}`).want(201)
	w.call(t, admin, "GET /tokens", "").want(200).has("tokens.1.subject=user=bob")
	for body, want := range map[string]string{
		`{"name": "a", "role": "viewer", "subject": "user=a"}`:             "only valid with the role self",
		`{"name": "a", "role": "self", "subject": "ip=::1"}`:               "user=NAME, or api_key=",
		`{"name": "a", "role": "self", "subject": "user="}`:                "user=NAME, or api_key=",
		`{"name": "a", "role": "self", "subject": "api_key=sha256:short"}`: "",
	} {
		if got := w.call(t, admin, "POST /tokens", body); want != "" {
			got.wantProblem(422, want)
		}
	}
}

// The usage that nodes have written can be listed, by a tenant only its own.
func TestDailyUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	today := time.Now().UTC().Format(time.DateOnly)
	for _, tenant := range []string{"acme", "globex"} {
		row := meter.Row{
			Day: today, Rule: "quota", Subject: headgate.SubjectOf("tenant", tenant), Attributes: headgate.Attributes{"tenant": tenant},
			Units: 7, Denied: 2,
		}
		if err := w.db.AddUsage(t.Context(), []meter.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	w.call(t, viewer, "GET /usage/daily", "").want(200).has("usage.*.subject.tenant=acme globex", "usage.*.units=7 7")
	w.call(t, viewer, "GET /usage/daily?limit=1&rule=quota&subject=tenant=acme", "").want(200).has("usage.*.day="+today, "usage.*.denied=2")
	w.call(t, "viewer.acme", "GET /usage/daily", "").want(200).has("usage.*.subject.tenant=acme")
	w.call(t, "viewer.acme", "GET /usage/daily?subject=tenant=globex", "").wantProblem(404, "not of tenant acme")
	w.call(t, "viewer.acme", "GET /usage/daily?subject=user=ann", "").wantProblem(404, "not of tenant acme")
	w.call(t, viewer, "GET /usage/daily?to=2020-01-01&from=2019-01-01", "").want(200).has("usage.*.units=")
	w.call(t, viewer, "GET /usage/daily?from=yesterday", "").wantProblem(400, "send a day")
}

// Reset and grant give units back, the audit has the actor, and tenants can credit only their own rules.
func TestCredits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, `{"id": "quota", "by": ["tenant"], "limit": "10/hour", "algorithm": "fixed_window"}`,
		`{"id": "expensive", "match": {"path": "/expensive"}, "by": ["user"], "limit": "100/hour", "cost": 5}`,
		`{"id": "rows", "match": {"path": "/rows"}, "by": ["user"], "limit": "100/hour",
			"cost": {"from": "header.x-rows", "default": 3, "max": 50}}`)
	w.create(t, acme, `{"id": "sub", "by": ["tenant"], "limit": "20/hour"}`)
	w.follow(t)
	w.check(t, 8, headgate.Attributes{"tenant": "acme"})
	w.check(t, 3, headgate.Attributes{"user": "ann", "path": "/expensive"})
	w.check(t, 3, headgate.Attributes{"user": "ann", "path": "/rows", "header.x-rows": "20"})
	for _, c := range []struct{ as, what, body, remaining string }{
		{editor, "quota/grant", `{"subject": {"tenant": "acme"}, "units": 3, "reason": "our mistake"}`, "5"},
		{editor, "quota/reset", `{"subject": {"tenant": "acme"}}`, "10"},
		{editor, "expensive/grant", `{"subject": {"user": "ann"}, "units": 10}`, "95"},
		{editor, "rows/grant", `{"subject": {"user": "ann"}, "units": 7}`, "47"},
		{editor, "rows/reset", `{"subject": {"user": "ann"}}`, "100"},
		{acme, "sub/grant", `{"subject": {"tenant": "acme"}, "units": 1}`, "13"},
	} {
		if got := w.call(t, c.as, "POST /rules/"+c.what, c.body).want(200); got.text("remaining") != c.remaining {
			t.Errorf("%s: %s left, want %s", c.what, got.text("remaining"), c.remaining)
		}
	}
	w.call(t, viewer, "GET /audit?rule=quota", "").want(200).
		has("entries.1.new.what=grant", "entries.1.new.units=3", "entries.1.new.reason=our mistake", "entries.1.actor=ann",
			"entries.*.object=counter counter rule")
	for what, want := range map[string]string{
		`expensive/grant {"subject": {"user": "ann"}, "units": 7}`: "a multiple of 5",
		`rows/grant {"subject": {"user": "ann"}, "units": 51}`:     "must be 1 to 50",
		`quota/grant {"subject": {"tenant": "x"}}`:                 "must be 1 to",
		`quota/reset {"subject": {"tenant": "x"}, "units": 1}`:     "units: not allowed for a reset",
		`quota/grant {"subject": {"user": "ann"}, "units": 1}`:     "subject: missing tenant",
	} {
		path, body, _ := strings.Cut(what, " ")
		w.call(t, editor, "POST /rules/"+path, body).wantProblem(422, want)
	}
	w.call(t, acme, "POST /rules/quota/reset", `{"subject": {"tenant": "acme"}}`).wantProblem(404)
	w.call(t, acme, "POST /rules/quota/grant", `{"subject": {"tenant": "acme"}, "units": 1}`).wantProblem(404)
	w.call(t, editor, "POST /rules/none/reset", `{"subject": {"user": "ann"}}`).wantProblem(404)
}

// Usage and credits also work with rules in files.
func TestUsageWithFiles(t *testing.T) {
	t.Parallel()
	a := newFilesAPI(t)
	for range 4 {
		if _, err := a.limiter.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"tenant": "acme"}}); err != nil {
			t.Fatal(err)
		}
	}
	for what, want := range map[string]string{
		"GET /v1/rate-limit/usage?subjectType=tenant&subjectId=acme&ruleId=quota": `"remaining":6`,
		"GET /v1/rate-limit/usage/me": `"remaining":6`,
	} {
		method, path, _ := strings.Cut(what, " ")
		status, body := send(a, httptest.NewRequest(method, path, http.NoBody), "viewer.acme")
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
	grant := func(as string) (int, string) {
		const body = `{"subject": {"tenant": "acme"}, "units": 2}`
		return send(a, httptest.NewRequest(http.MethodPost, RulesPath+"/quota/grant", strings.NewReader(body)), as)
	}
	if status, body := grant(editor); status != 200 || !strings.Contains(body, `"remaining":8`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := grant(acme); status != 404 {
		t.Errorf("%d %s", status, body)
	}
}

// unavailableStore is a store that always fails.
type unavailableStore struct{}

func (unavailableStore) Shard(headgate.Subject) int { return 0 }

func (unavailableStore) Take(_ context.Context, _ []headgate.Charge, results []headgate.Result) error {
	for i := range results {
		results[i].Err = headgate.ErrUnavailable
	}
	return headgate.ErrUnavailable
}

// Without the store usage is a 503, not a guess.
func TestUsageWithoutStore(t *testing.T) {
	t.Parallel()
	a := newFilesAPI(t)
	a.limiter = headgate.NewLimiter(unavailableStore{}, a.limiter.Rules(), headgate.Options{})
	for what, body := range map[string]string{
		"GET /v1/rate-limit/usage?subjectType=tenant&subjectId=acme&ruleId=quota": "",
		"GET /v1/rate-limit/usage/me":           "",
		"POST /v1/rate-limit/rules/quota/grant": `{"subject": {"tenant": "acme"}, "units": 2}`,
	} {
		as := editor
		if strings.HasSuffix(what, "/me") {
			as = acme
		}
		method, path, _ := strings.Cut(what, " ")
		status, detail := send(a, httptest.NewRequest(method, path, strings.NewReader(body)), as)
		if status != 503 || !strings.HasPrefix(detail, "the store: ") {
			t.Errorf("%s: %d %s", what, status, detail)
		}
	}
}
