package adminapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// entry is who may use an endpoint, said once more than in routes, and how the test asks it.
type entry struct {
	least     Role
	perTenant bool
	// ask is about something that a tenant has.
	ask func(tenant string) *http.Request
	// want is what those who may are answered.
	want int
	// shared is of endpoints that show everybody what is theirs, whatever is asked.
	shared bool
}

// newMatrix has a line for every endpoint. Each tenant has a rule of its name, and one that stays in force, and each
// question is about something new.
func newMatrix(t *testing.T, w *world) map[string]entry {
	t.Helper()
	n := 0
	request := func(what, body string, args ...any) *http.Request {
		n++
		method, path, _ := strings.Cut(fmt.Sprintf(what, args...), " ")
		if !strings.HasPrefix(path, "/v1") && !strings.HasPrefix(path, "/trial") && !strings.HasPrefix(path, "/debug") {
			path = "/v1/rate-limit" + path
		}
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if r.Header.Set("If-Match", "*"); body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		return r
	}
	always := func(what, body string) func(string) *http.Request {
		return func(string) *http.Request { return request(what, body) }
	}
	made := func(what, body, id string) string {
		t.Helper()
		return w.ask(t, admin, what, body).want(http.StatusCreated).text(id)
	}
	const ann = `{"subjectType": "user", "subjectValue": "ann"}`
	return map[string]entry{
		"POST /v1/explain": {Viewer, false, func(tenant string) *http.Request {
			return request("POST /v1/explain", `{"attributes": {"tenant": "`+tenant+`"}}`)
		}, 200, false},
		"GET /v1/openapi.yaml":           {Viewer, true, always("GET /v1/openapi.yaml", ""), 200, true},
		"POST /v1/rate-limit/exemptions": {Editor, false, always("POST /exemptions", ann), 201, false},
		"GET /v1/rate-limit/rules":       {Viewer, true, always("GET /rules", ""), 200, true},
		"POST /v1/rate-limit/rules": {Editor, true, func(tenant string) *http.Request {
			const rule = `{"id": "r%d", "match": {"tenant": %q}, "by": ["user"], "limit": "1/s"}`
			return request("POST /rules", fmt.Sprintf(rule, n, tenant))
		}, 201, false},
		"GET /v1/rate-limit/rules/{ruleId}": {Viewer, true, func(tenant string) *http.Request {
			return request("GET /rules/%s", "", tenant)
		}, 200, false},
		"PUT /v1/rate-limit/rules/{ruleId}": {Editor, true, func(tenant string) *http.Request {
			return request("PUT /rules/%s", document(tenant, "7/s"), tenant)
		}, 200, false},
		"DELETE /v1/rate-limit/rules/{ruleId}": {Editor, true, func(tenant string) *http.Request {
			return request("DELETE /rules/%s", "", tenant)
		}, 204, false},
		"GET /v1/rate-limit/rules/{ruleId}/exemptions": {Viewer, true, func(tenant string) *http.Request {
			return request("GET /rules/%s/exemptions", "", tenant)
		}, 200, false},
		"POST /v1/rate-limit/rules/{ruleId}/exemptions": {Editor, true, func(tenant string) *http.Request {
			return request("POST /rules/%s/exemptions", ann, tenant)
		}, 201, false},
		"GET /v1/rate-limit/exemptions": {Viewer, true, always("GET /exemptions", ""), 200, true},
		"DELETE /v1/rate-limit/exemptions/{exemptionId}": {Editor, true, func(tenant string) *http.Request {
			return request("DELETE /exemptions/%s", "", made("POST /rules/"+tenant+"/exemptions", ann, "exemptionId"))
		}, 204, false},
		"GET /v1/rate-limit/overrides": {Viewer, true, always("GET /overrides", ""), 200, true},
		"POST /v1/rate-limit/overrides": {Editor, true, func(tenant string) *http.Request {
			return request("POST /overrides", fmt.Sprintf(subLimit, tenant, tenant))
		}, 201, false},
		"DELETE /v1/rate-limit/overrides/{overrideId}": {Editor, true, func(tenant string) *http.Request {
			return request("DELETE /overrides/%s", "", made("POST /overrides", fmt.Sprintf(subLimit, tenant, tenant), "overrideId"))
		}, 204, false},

		"POST /v1/rate-limit/rules/{ruleId}/reset": {Editor, true, func(tenant string) *http.Request {
			const reset = `{"subject": {"tenant": %q, "user": "ann"}}`
			return request("POST /rules/%s-used/reset", fmt.Sprintf(reset, tenant), tenant)
		}, 200, false},
		"POST /v1/rate-limit/rules/{ruleId}/grant": {Editor, true, func(tenant string) *http.Request {
			const grant = `{"subject": {"tenant": %q, "user": "ann"}, "units": 1}`
			return request("POST /rules/%s-used/grant", fmt.Sprintf(grant, tenant), tenant)
		}, 200, false},
		"GET /v1/rate-limit/usage": {Viewer, true, func(tenant string) *http.Request {
			return request("GET /usage?subjectType=user&subjectId=ann&tenant=%s&ruleId=%s-used", "", tenant, tenant)
		}, 200, false},
		"GET /v1/rate-limit/usage/me": {Self, true, always("GET /usage/me", ""), 200, true},
		"GET /v1/rate-limit/usage/daily": {Viewer, true, func(tenant string) *http.Request {
			return request("GET /usage/daily?subject=tenant=%s", "", tenant)
		}, 200, false},
		"GET /v1/rate-limit/versions":                        {Viewer, false, always("GET /versions", ""), 200, false},
		"POST /v1/rate-limit/versions":                       {Editor, false, always("POST /versions", `{"mode": "enforce"}`), 200, false},
		"GET /v1/rate-limit/versions/{version}":              {Viewer, false, always("GET /versions/1", ""), 200, false},
		"GET /v1/rate-limit/versions/{version}/diff/{other}": {Viewer, false, always("GET /versions/1/diff/1", ""), 200, false},
		"POST /v1/rate-limit/versions/{version}/rollback":    {Editor, false, always("POST /versions/3/rollback", ""), 200, false},
		"POST /v1/rate-limit/validate":                       {Viewer, true, always("POST /validate", document("new", "1/s")), 200, true},
		"GET /v1/rate-limit/audit":                           {Viewer, true, always("GET /audit", ""), 200, true},
		"GET /v1/rate-limit/nodes":                           {Viewer, false, always("GET /nodes", ""), 200, false},
		"GET /v1/rate-limit/tokens":                          {Admin, false, always("GET /tokens", ""), 200, false},
		"POST /v1/rate-limit/tokens":                         {Admin, false, always("POST /tokens", `{"name": "bob"}`), 201, false},
		"DELETE /v1/rate-limit/tokens/{tokenId}": {Admin, false, func(string) *http.Request {
			return request("DELETE /tokens/%s", "", made("POST /tokens", `{"name": "bob"}`, "tokenId"))
		}, 204, false},

		"GET /v1/rate-limit/top":     {Viewer, false, always("GET /top", ""), 200, false},
		"GET /v1/rate-limit/denials": {Viewer, false, always("GET /denials?attribute=user=ann", ""), 200, false},
		"GET /debug/pprof/{profile}": {Admin, false, always("GET /debug/pprof/goroutine", ""), 200, false},

		// These show what the others are judged by.
		"PUT /trial/{tenant}": {Editor, true, func(tenant string) *http.Request {
			return request("PUT /trial/%s", "", tenant)
		}, 204, false},
		"PUT /trial/all":       {Admin, false, always("PUT /trial/all", ""), 204, false},
		"GET /trial/forgotten": {"nobody", false, always("GET /trial/forgotten", ""), 204, false},
	}
}

const subLimit = `{"rule": %q, "subject": {"tenant": %q, "user": "ann"}, "limit": "3/s"}`

func trial(_ *api, c *call) (any, error) {
	if tenant := c.PathValue("tenant"); tenant != "" && !c.by.owns(tenant) {
		return nil, newProblem(http.StatusNotFound, "there is no tenant "+tenant)
	}
	return nil, nil //nolint:nilnil // nothing is the answer
}

var trials = []route{
	{http.MethodPut, "/trial/{tenant}", Editor, perTenant, anywhere, trial},
	{http.MethodPut, "/trial/all", Admin, wholeServer, anywhere, trial},
	{http.MethodGet, "/trial/forgotten", "", wholeServer, anywhere, trial},
}

// withTrials adds the trials to an API.
func withTrials(a *api) *api {
	a.mux = http.ServeMux{}
	a.handle(append(slices.Clone(routes), trials...))
	return a
}

// ask is what a caller is answered, and the detail if that is a problem, else the body.
func ask(a *api, r *http.Request, token string) (status int, detail string) {
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return said(w)
}

func said(w *httptest.ResponseRecorder) (status int, detail string) {
	var p problem
	switch {
	case w.Code < 400:
		return w.Code, w.Body.String()
	case json.Unmarshal(w.Body.Bytes(), &p) != nil || p.Status != w.Code:
		return 0, w.Body.String()
	}
	return w.Code, p.Detail
}

// hold is ask, and holds what is said to what is described.
func (w *world) hold(t *testing.T, r *http.Request, token string) (status int, detail string) {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	recorder := httptest.NewRecorder()
	w.api.ServeHTTP(recorder, r)
	if !strings.HasPrefix(r.URL.Path, "/trial") {
		w.describe.hold(t, r, string(body), recorder)
	}
	return said(recorder)
}

// TestMatrix asks every endpoint in every role, for the caller's own tenant and for another. All that is described is seen.
func TestMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("ours", "9/s"))
	w.create(t, acme, document("acme", "9/s"), document("acme-used", "9/s"))
	w.create(t, globex, document("globex", "9/s"), document("globex-used", "9/s"))
	w.follow(t)
	s := &sees{}
	w.api.Top, w.api.Denials, w.api.ShowSubjects = s.Top, s.Denials, "clear"
	matrix := newMatrix(t, w)
	a := withTrials(w.api)
	if len(matrix) != len(a.routes) {
		t.Errorf("the matrix has %d endpoints, the API %d", len(matrix), len(a.routes))
	}
	for i := range a.routes {
		name := a.routes[i].String()
		e, ok := matrix[name]
		if !ok {
			t.Errorf("%s is not in the matrix: say who may use it", name)
			continue
		}
		if status, _ := ask(a, e.ask("acme"), ""); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", name, status)
		}
		for rank, role := range []Role{"", "root", Self, Viewer, Editor, Admin} {
			for _, tenant := range []string{"", "acme"} {
				for _, about := range []string{"acme", "globex"} {
					status, detail := w.hold(t, e.ask(about), string(role)+"."+tenant)
					ok := status == e.want
					switch least := slices.Index([]Role{"", "", Self, Viewer, Editor, Admin}, e.least); {
					case rank < least || least < 0:
						ok = status == http.StatusForbidden && strings.Contains(detail, "ann has the role "+string(role)) &&
							(least < 0 || strings.Contains(detail, "takes the role "+string(e.least)))
					case tenant != "" && !e.perTenant:
						ok = status == http.StatusForbidden && strings.HasSuffix(detail, "is about all tenants, and ann is of tenant acme only")
					case e.shared && tenant != "":
						ok = status == e.want && !strings.Contains(detail, "globex")
					case tenant != "" && tenant != about:
						ok = status == http.StatusForbidden || status == http.StatusNotFound || status == http.StatusUnprocessableEntity
					}
					if !ok {
						t.Errorf("%s about %s, as %q of %q: %d %s", name, about, role, tenant, status, detail)
					}
				}
			}
		}
	}
	for name := range w.describe.operations() {
		if !w.describe.seen[name] {
			t.Errorf("%s was not seen to do what it is for", name)
		}
	}
}

// Neither what is nowhere nor another method is an endpoint; a path with a name in it takes nothing from others.
func TestNowhere(t *testing.T) {
	t.Parallel()
	a := withTrials(newFilesAPI(t))
	for request, want := range map[string]string{
		"GET /trial/acme":       "405 /trial/acme takes PUT",
		"GET /trial/all":        "405 /trial/all takes PUT",
		"PUT /trial/":           "404 there is no such path; GET /v1/openapi.yaml says what there is",
		"POST /trial/forgotten": "405 /trial/forgotten takes PUT, GET",
	} {
		method, path, _ := strings.Cut(request, " ")
		status, detail := ask(a, httptest.NewRequest(method, path, http.NoBody), "viewer.")
		if got := fmt.Sprint(status, " ", detail); got != want {
			t.Errorf("%s: %s", request, got)
		}
	}
	if status, _ := ask(a, httptest.NewRequest(http.MethodGet, "/nowhere", http.NoBody), ""); status != http.StatusUnauthorized {
		t.Errorf("%d: those without a token are told what there is", status)
	}
}

// newFilesAPI is of a server whose rules are in files.
func newFilesAPI(t *testing.T) *api {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{ID: "quota", By: []string{"tenant"}, Limit: headgate.PerMinute(10)})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := New(limiter, Options{Tokens: says{}, Log: slog.New(slog.DiscardHandler)}).(*api)
	return a
}

// Where rules are in files, what is in the database says so.
func TestRulesInFiles(t *testing.T) {
	t.Parallel()
	a := newFilesAPI(t)
	for i := range routes {
		rt := &routes[i]
		status, detail := ask(a, httptest.NewRequest(rt.method, rt.path, http.NoBody), admin)
		said := status == http.StatusNotImplemented && strings.HasPrefix(detail, "rules are in files; with postgres in the config")
		if said != rt.inDatabase {
			t.Errorf("%s: %d %s", rt, status, detail)
		}
	}
}

// Nobody asks too often.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newFilesAPI(t)
		expect := func(as string, want int) {
			t.Helper()
			if status, _ := ask(a, httptest.NewRequest(http.MethodGet, documentPath, http.NoBody), as); status != want {
				t.Errorf("%s: %d, want %d", as, status, want)
			}
		}
		for range callsAtOnce {
			expect(viewer, 200)
		}
		expect(viewer, 429)
		expect(editor, 200)
		expect(acme, 200)
		time.Sleep(time.Second / callsPerSecond)
		expect(viewer, 200)
	})
}

// Without tokens nobody is let in.
func TestNobody(t *testing.T) {
	t.Parallel()
	a, _ := New(nil, Options{Log: slog.New(slog.DiscardHandler)}).(*api)
	for _, token := range []string{"", "x", "admin."} {
		if status, _ := ask(a, httptest.NewRequest(http.MethodPost, ExplainPath, http.NoBody), token); status != http.StatusUnauthorized {
			t.Errorf("%q: %d", token, status)
		}
	}
}
